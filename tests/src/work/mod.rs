//! Workloads: services for holders and clients for hosts, all as threads of the lab's process on
//! sockets of the hosts' networks, so that their instants are on one clock.

mod ask;
mod nginx;
mod pulse;
mod service;
mod steady;
mod talk;
mod transfer;

use ask::read_head;
pub use ask::{
    ask_udp, ask_udp_from_each, ask_udp_here, connect_here, echoes_whole, get, get_here,
};
pub use nginx::start_nginx;
pub use pulse::{Beat, Pulse};
pub use service::{Arrival, HttpServer, TcpService, UdpService, UdpSink};
pub use steady::{Download, DownloadEnd, OneWay, Reader, Request, RequestLog, Requests};
pub use talk::{Talker, name_redis};
pub use transfer::{Direction, Transfer, Transferred, serve_transfers};
