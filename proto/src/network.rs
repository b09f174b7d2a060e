//! Prefixes on the wire: a byte string, 4 or 16 bytes of address and one of length, no bit set
//! beyond the length.

use std::net::IpAddr;

use ipnet::IpNet;
use minicbor::{Decoder, Encoder, decode, encode};

fn write<W: encode::Write>(
    network: &IpNet,
    e: &mut Encoder<W>,
) -> Result<(), encode::Error<W::Error>> {
    let mut bytes = [0; 17];
    let length = match network.addr() {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            4
        }
        IpAddr::V6(address) => {
            bytes[..16].copy_from_slice(&address.octets());
            16
        }
    };
    bytes[length] = network.prefix_len();
    e.bytes(&bytes[..=length])?.ok()
}

fn read(d: &mut Decoder<'_>) -> Result<IpNet, decode::Error> {
    let bytes = d.bytes()?;
    let refused = || decode::Error::message("not a network");
    let (&length, address) = bytes.split_last().ok_or_else(refused)?;
    let address: IpAddr = if let Ok(octets) = <[u8; 4]>::try_from(address) {
        octets.into()
    } else if let Ok(octets) = <[u8; 16]>::try_from(address) {
        octets.into()
    } else {
        return Err(refused());
    };
    let network = IpNet::new(address, length).map_err(|_| refused())?;
    if network.network() != address {
        return Err(decode::Error::message("network with host bits"));
    }
    Ok(network)
}

/// For `#[cbor(with = …)]` on a list of networks.
pub(crate) mod list {
    use super::*;

    pub(crate) fn encode<C, W: encode::Write>(
        networks: &[IpNet],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(networks.len() as u64)?;
        for network in networks {
            write(&network.trunc(), e)?;
        }
        Ok(())
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<IpNet>, decode::Error> {
        let count = d
            .array()?
            .ok_or_else(|| decode::Error::message("list of unknown length"))?;
        (0..count).map(|_| read(d)).collect()
    }
}

#[cfg(test)]
mod tests {
    use minicbor::bytes::ByteVec;

    use super::*;

    fn read_bytes(bytes: &[u8]) -> Result<IpNet, decode::Error> {
        let encoded = crate::signed::to_bytes(&ByteVec::from(bytes.to_vec()));
        read(&mut Decoder::new(&encoded))
    }

    #[test]
    fn networks_of_both_families_survive_the_wire() {
        for text in [
            "10.0.0.0/8",
            "192.0.2.1/32",
            "0.0.0.0/0",
            "fd00::/8",
            "::1/128",
        ] {
            let network: IpNet = text.parse().unwrap();
            let mut bytes = Vec::new();
            write(&network, &mut Encoder::new(&mut bytes)).unwrap();

            assert_eq!(read(&mut Decoder::new(&bytes)).unwrap(), network);
        }
    }

    #[test]
    fn host_bits_and_impossible_lengths_are_refused() {
        assert!(read_bytes(&[10, 0, 0, 1, 8]).is_err());
        assert!(read_bytes(&[10, 0, 0, 0, 33]).is_err());
        assert!(read_bytes(&[10, 0, 0, 8]).is_err());
        assert!(read_bytes(&[]).is_err());
    }
}
