//! What the packet way counts: why packets were dropped, what flows did. By value: the shell
//! copies them out for `metrics`.

use crate::reason::Reason;

macro_rules! closed_list {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident => $word:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$inner])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order of metrics and docs.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the word that logs and metrics show.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

closed_list! {
    /// Why a packet went no further. A closed list: it is the `reason` label of
    /// `anchor_dropped_packets`.
    DropReason {
        /// A packet from the interface that is no valid IP packet.
        Malformed => "malformed",
        /// Nobody advertises the destination.
        NoRoute => "no-route",
        /// The destination's network is refused here.
        RefusedNetwork => "refused-network",
        /// All holders of the destination have left or failed.
        NoHolder => "no-holder",
        /// The source is neither this machine nor a host of its subnets.
        ForeignSource => "foreign-source",
        /// The destination is a client address that no mapping has.
        NoMapping => "no-mapping",
        /// The pool of client addresses is full, or the peer's share of it.
        PoolFull => "pool-full",
        /// The peer and this anchor may not exchange data.
        Taint => "taint",
        /// The destination is not served here.
        NotServed => "not-served",
        /// Nobody asked for it, and its port is not let in.
        NotExposed => "not-exposed",
        /// The peer may not use that source address.
        PeerSource => "peer-source",
        /// From a holder that is not the flow's own.
        NotPinned => "not-pinned",
        /// Two local addresses use the same ports to the same destination.
        Clash => "clash",
        /// Of a connection that was reset when its flow moved.
        ResetConnection => "reset-connection",
        /// No keys for the peer.
        NoSession => "no-session",
        /// No known path to the peer.
        NoPath => "no-path",
        /// Too many packets wait for a holder to answer.
        HoldFull => "hold-full",
        /// Nobody answered while the packet waited.
        HoldExpired => "hold-expired",
        /// Larger than the path takes and not to be fragmented.
        TooBig => "too-big",
        /// Has no counterpart in the other IP version.
        Untranslatable => "untranslatable",
        /// No frame of ours, or an unknown type.
        MalformedFrame => "malformed-frame",
        /// A frame under an unknown receiver index.
        UnknownIndex => "unknown-index",
        /// A frame that was seen before.
        Replayed => "replayed",
        /// A frame that does not authenticate.
        NotAuthentic => "not-authentic",
        /// To be carried, or carried here, without a lease.
        NoLease => "no-lease",
        /// To be carried, above what this anchor may carry.
        RelayLimit => "relay-limit",
        /// An authentic frame whose packet is no valid IP packet.
        MalformedInner => "malformed-inner",
        /// The kernel did not take the datagram.
        SendFailed => "send-failed",
        /// The kernel did not take the packet.
        InterfaceFailed => "interface-failed",
    }
}

/// Counters of the packet way; all only grow.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    dropped: [u64; DropReason::ALL.len()],
    chosen: [u64; Reason::ALL.len()],
    /// Packets taken from the interface; a super-packet counts once.
    pub host_packets: u64,
    /// Their bytes.
    pub host_bytes: u64,
    /// Packets written to the interface; a super-packet counts once.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames sealed and sent.
    pub frames_sent: u64,
    /// Authentic frames received.
    pub frames_received: u64,
    /// Datagrams carried for others.
    pub relayed_datagrams: u64,
    /// Their bytes, outer headers included.
    pub relayed_bytes: u64,
    /// Connections reset because their flow moved or lost its last holder.
    pub resets: u64,
    /// SYNs sent again to the new holder.
    pub syn_replays: u64,
    /// Holders that failed for this client.
    pub holder_failures: u64,
    /// Deadlines that were put down to this machine's own network.
    pub local_faults: u64,
    /// Flows removed because the table was full.
    pub flows_evicted: u64,
}

impl Counters {
    /// Counts a dropped packet.
    pub const fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Counts a choice of a holder.
    pub const fn choose(&mut self, reason: Reason) {
        self.chosen[reason as usize] += 1;
    }

    /// Returns the packets dropped for `reason`.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the choices made for `reason`.
    pub const fn chosen(&self, reason: Reason) -> u64 {
        self.chosen[reason as usize]
    }
}
