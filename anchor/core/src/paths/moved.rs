//! This machine's own network changed: its addresses of before are not to be sent from.

use super::Paths;

impl Paths {
    /// Lets the kernel choose by which of this machine's addresses each peer is answered, until
    /// that peer is heard again: those noted may be gone, and the routes lead out by other cards.
    pub fn handle_moved(&mut self) {
        for peer in self.peers.values_mut() {
            let ways = [&mut peer.current, &mut peer.last];
            for way in ways.into_iter().flatten() {
                way.local = None;
            }
            let heard = peer.dial.as_mut().and_then(|dial| dial.heard.as_mut());
            if let Some((way, _)) = heard {
                way.local = None;
            }
        }
        let heard = self.unknown.values_mut().map(|dialled| &mut dialled.heard);
        for way in heard.flatten() {
            way.local = None;
        }
    }
}
