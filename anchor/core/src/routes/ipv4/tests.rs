use proptest::prelude::*;

use super::*;

#[test]
fn private_addresses_are_accepted_and_advertised() {
    for text in [
        "10.0.0.1",
        "10.128.0.9",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.254",
        "192.168.0.1",
        "100.64.0.1",
        "100.127.255.254",
    ] {
        let choice = check_ipv4(text).unwrap();

        assert_eq!(choice.address.to_string(), text);
        assert_eq!(choice.prefix_len, 32, "{text}");
        assert!(choice.advertised, "{text}");
    }
}

#[test]
fn public_addresses_are_accepted_and_not_advertised() {
    for text in [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "11.0.0.1",
    ] {
        let choice = check_ipv4(text).unwrap();

        assert!(!choice.advertised, "{text}");
    }
}

#[test]
fn a_length_widens_the_range_and_leaves_the_address() {
    let choice = check_ipv4("10.128.0.9/16").unwrap();

    assert_eq!(choice.address, Ipv4Addr::new(10, 128, 0, 9));
    assert_eq!(choice.prefix_len, 16);
    assert!(choice.advertised);
}

#[test]
fn reserved_addresses_are_refused_with_address_and_reason() {
    let table = [
        (
            "198.18.0.1",
            "198.18.0.0/15 (where clients get their addresses)",
        ),
        (
            "198.19.255.255",
            "198.18.0.0/15 (where clients get their addresses)",
        ),
        ("127.0.0.1", "127.0.0.0/8 (loopback)"),
        ("169.254.7.7", "169.254.0.0/16 (link-local)"),
        ("224.0.0.1", "224.0.0.0/4 (multicast)"),
        ("239.255.255.255", "224.0.0.0/4 (multicast)"),
        ("240.0.0.1", "240.0.0.0/4 (reserved)"),
        ("255.255.255.255", "255.255.255.255/32 (broadcast)"),
        ("0.0.0.0", "0.0.0.0/8 (unspecified)"),
        ("0.1.2.3", "0.0.0.0/8 (unspecified)"),
        (
            "192.0.0.2",
            "192.0.0.0/24 (reserved for protocols; clients are 192.0.0.2)",
        ),
    ];
    for (text, reason) in table {
        for given in [text.to_owned(), format!("{text}/32"), format!("{text}/0")] {
            let message = check_ipv4(&given).unwrap_err().to_string();

            assert!(
                message.contains(text) && message.contains(reason),
                "{given}: {message}"
            );
        }
    }
}

#[test]
fn ranges_that_cover_reserved_ones_are_refused() {
    let table = [
        ("10.0.0.1/4", "0.0.0.0/8"),
        ("100.64.0.1/3", "127.0.0.0/8"),
        ("172.16.0.1/4", "169.254.0.0/16"),
        ("192.168.0.1/8", "192.0.0.0/24"),
        ("199.1.1.1/7", "198.18.0.0/15"),
        ("223.1.1.1/2", "192.0.0.0/24"),
    ];
    for (text, range) in table {
        let refused = check_ipv4(text).unwrap_err();

        let message = refused.to_string();
        assert!(
            matches!(refused, Ipv4Refused::Covers { .. }),
            "{text}: {message}"
        );
        assert!(
            message.contains(text) && message.contains(range),
            "{text}: {message}"
        );
    }
    assert!(check_ipv4("200.1.1.1/6").is_ok());
}

#[test]
fn length_zero_is_refused() {
    let refused = check_ipv4("10.0.0.1/0").unwrap_err();

    assert_eq!(refused, Ipv4Refused::ZeroLength("10.0.0.1/0".to_owned()));
    assert!(refused.to_string().contains("prefix length 0"));
}

#[test]
fn ipv6_is_refused_as_such() {
    for text in [
        "::1",
        "fd80::1",
        "64:ff9b:1::a80:9",
        "::ffff:10.0.0.1",
        "fd80::1/64",
        "::/0",
    ] {
        assert_eq!(check_ipv4(text), Err(Ipv4Refused::Ipv6(text.to_owned())));
    }
}

#[test]
fn what_is_no_address_is_refused_as_such() {
    for text in [
        "",
        "/",
        "/24",
        "10.0.0",
        "10.0.0.256",
        "010.0.0.1",
        "10.0.0.1 ",
        "host",
        "10.0.0.1:5",
    ] {
        assert_eq!(
            check_ipv4(text),
            Err(Ipv4Refused::NotAnAddress(text.to_owned()))
        );
    }
}

#[test]
fn a_bad_length_is_refused_as_such() {
    for text in [
        "10.0.0.1/",
        "10.0.0.1/33",
        "10.0.0.1/-1",
        "10.0.0.1/+8",
        "10.0.0.1/8/8",
        "10.0.0.1/x",
    ] {
        assert_eq!(
            check_ipv4(text),
            Err(Ipv4Refused::BadLength(text.to_owned()))
        );
    }
}

#[test]
fn client_ranges_are_private_and_of_a_useful_size() {
    for (text, range) in [
        ("198.18.0.0/15", "198.18.0.0/15"),
        ("198.19.0.0/16", "198.19.0.0/16"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("172.20.1.2/16", "172.20.0.0/16"),
        ("192.168.7.16/28", "192.168.7.16/28"),
    ] {
        assert_eq!(check_client_range(text), Ok(range.parse().unwrap()));
    }
    for text in ["198.18.0.0/29", "0.0.0.0/0", "8.0.0.0/7"] {
        assert!(
            matches!(
                check_client_range(text),
                Err(ClientRangeRefused::BadLength(_))
            ),
            "{text}"
        );
    }
    for text in [
        "8.8.0.0/16",
        "198.16.0.0/13",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/8",
    ] {
        assert!(
            matches!(
                check_client_range(text),
                Err(ClientRangeRefused::NotPrivate(_))
            ),
            "{text}"
        );
    }
    for text in ["", "198.18.0.0", "fd00::/16", "198.18.0.0/x"] {
        assert!(
            matches!(
                check_client_range(text),
                Err(ClientRangeRefused::NotANetwork(_))
            ),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_gets_an_answer(text in "[0-9./:a-f+ -]{0,24}") {
        let _ = check_ipv4(&text);
        let _ = check_client_range(&text);
    }

    #[test]
    fn what_is_accepted_meets_no_reserved_range(bits: u32, length in 0..=32_u8) {
        let address = Ipv4Addr::from_bits(bits);

        match check_ipv4(&format!("{address}/{length}")) {
            Ok(choice) => {
                let range = Ipv4Net::new(choice.address, choice.prefix_len).unwrap();
                prop_assert_eq!(choice.address, address);
                prop_assert!(length > 0);
                prop_assert!(reserved_range(range).is_none());
                prop_assert_eq!(
                    choice.advertised,
                    address.is_private() || address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64
                );
            }
            Err(refused) => {
                prop_assert!(refused.to_string().contains(&address.to_string()));
                prop_assert!(
                    length == 0 || reserved_range(Ipv4Net::new(address, length).unwrap()).is_some()
                );
            }
        }
    }
}
