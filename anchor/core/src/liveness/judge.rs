//! What a deadline means: the holder is gone, or this machine's own network is. A pure choice,
//! SPEC section 5 (a) to (c); the plane counts the surroundings and calls [`judge`].

/// Who else answers, as seen when a holder's deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Surroundings {
    /// Other holders of the group that answered since they were asked.
    pub others_in_group_answering: usize,
    /// Other holders of the group, answering or not.
    pub others_in_group: usize,
    /// Peers known besides this holder, those of its group included.
    pub other_peers_known: usize,
    /// Of those, how many answered since they were asked.
    pub other_peers_answering: usize,
}

/// What to do with a holder whose deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Another holder answers: the holder has failed and its flows move.
    Move,
    /// The holder has failed and no other one is there to take its flows.
    Fail,
    /// Nobody answers though others are known: the fault is here, and flows stay.
    Local,
}

/// Returns what a passed deadline means in these surroundings.
pub const fn judge(around: &Surroundings) -> Verdict {
    if around.others_in_group_answering > 0 {
        return Verdict::Move;
    }
    let is_alone = around.others_in_group == 0 && around.other_peers_known == 0;
    if around.other_peers_answering > 0 || is_alone {
        Verdict::Fail
    } else {
        Verdict::Local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_judged_by_who_else_answers() {
        // others answering in group, others in group, peers known, peers answering
        let table = [
            ((1, 1, 1, 1), Verdict::Move),
            ((1, 2, 5, 1), Verdict::Move),
            ((0, 2, 5, 1), Verdict::Fail),
            ((0, 0, 1, 1), Verdict::Fail),
            ((0, 0, 0, 0), Verdict::Fail),
            ((0, 0, 1, 0), Verdict::Local),
            ((0, 1, 1, 0), Verdict::Local),
            ((0, 2, 5, 0), Verdict::Local),
        ];
        for ((answering, others, known, peers_answering), verdict) in table {
            let around = Surroundings {
                others_in_group_answering: answering,
                others_in_group: others,
                other_peers_known: known,
                other_peers_answering: peers_answering,
            };

            assert_eq!(judge(&around), verdict, "{around:?}");
        }
    }
}
