//! The one thread that forks. PR_SET_PDEATHSIG kills a child when the *thread* that forked it
//! ends, and a pid namespace is entered by the thread that forks: both want a thread that lives as
//! long as the test does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Runs `work` on the forking thread and returns what it returned.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    static JOBS: OnceLock<Sender<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("lab-spawner".into())
            .spawn(move || receiver.iter().for_each(|job| job()))
            .expect("a thread can be started");
        sender
    });
    let (answer, result) = mpsc::channel();
    let job = Box::new(move || {
        // The asker may be gone; nobody wants the answer then.
        let _ = answer.send(catch_unwind(AssertUnwindSafe(work)));
    });
    jobs.send(job).expect("the spawner never ends");
    match result.recv().expect("the spawner answers each job") {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    }
}
