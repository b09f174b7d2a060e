//! What the host is set to, read from /proc/sys in the network namespace of the calling thread.

use std::fs;

/// Returns whether `interface` may carry IPv6: the kernel has it, and it is not switched off.
pub fn has_ipv6(interface: &str) -> bool {
    read(&format!("ipv6/conf/{interface}/disable_ipv6")).is_some_and(|value| value == "0")
}

/// Returns whether this host passes IPv4 packets on from one interface to another.
pub fn forwards_ipv4() -> bool {
    read("ipv4/ip_forward").is_some_and(|value| value != "0")
}

/// Returns whether this host passes IPv6 packets on from one interface to another.
pub fn forwards_ipv6() -> bool {
    read("ipv6/conf/all/forwarding").is_some_and(|value| value != "0")
}

/// A value nobody can read (no such family, a container without /proc/sys) counts as off.
fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/net/{name}"))
        .ok()
        .map(|value| value.trim().to_owned())
}
