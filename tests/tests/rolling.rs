//! A rolling restart of all holders, drained one after another, under the load of wrk.

use std::fs;
use std::time::{Duration, Instant};

use e2e::host::Program;
use e2e::scenario::{Client, Plan, Realm};
use e2e::wait;
use e2e::work::start_nginx;

const PORT: u16 = 8080;
const URL: &str = "http://10.128.0.9:8080/page";

#[test]
fn a_rolling_restart_with_drain_fails_no_request_of_wrk() {
    let mut realm = Realm::start(&Plan::of(3, 2));
    let _nginx: Vec<Program> = realm
        .holders
        .iter()
        .map(|holder| {
            let nginx = start_nginx(&holder.host, PORT);
            fs::write(holder.host.outside_path("/run/site/page"), "a page").unwrap();
            nginx
        })
        .collect();
    for client in &realm.clients {
        wait::until(Duration::from_secs(10), "nginx", || {
            let curl = ["-sSf", "-m", "5", URL];
            client.host.command("curl").args(curl).answer().code == 0
        });
    }
    // One asks on a new connection each time; one in bursts on connections that it keeps.
    let closing = wrk(&realm.clients[0], "-c1 -H Connection:close", "1s");
    let keeping = wrk(&realm.clients[1], "-c8", "1s");

    let began = Instant::now();
    for place in 0..realm.holders.len() {
        let anchor = &mut realm.holders[place].anchor;
        let drained = anchor.command().args(["drain", "--wait", "30s"]);
        let drained = drained.answer_within(Duration::from_secs(40));
        assert_eq!(drained.code, 0, "{drained:?}");
        anchor.down();
        anchor.run();
        realm.settle();
        realm.holders[place].anchor.say(["undrain"]);
    }
    let took = began.elapsed();

    for (name, load) in [("closing", closing), ("keeping", keeping)] {
        let told = load.end();
        println!("{name}, over {:.1} s:\n{told}", took.as_secs_f64());
        assert!(!told.contains("Socket errors"), "{name}: {told}");
        assert!(!told.contains("Non-2xx"), "{name}: {told}");
        assert!(!told.contains("unable to"), "{name}: {told}");
        assert!(requests(&told) > 500, "{name}: {told}");
    }
}

/// wrk, again and again.
struct Wrk {
    client: e2e::Host,
    program: Program,
}

fn wrk(client: &Client, flags: &str, time: &str) -> Wrk {
    let script = format!(
        "while [ ! -e /run/enough ]; do wrk -t1 {flags} -d{time} {URL} || echo unable to run; done"
    );
    let log = client.host.outside_path("/run/wrk.out");
    let program = client
        .host
        .command("sh")
        .args(["-c", &script])
        .spawn(&log)
        .expect("sh is there");
    Wrk {
        client: client.host.clone(),
        program,
    }
}

impl Wrk {
    /// Lets the last run come to its end and returns all they have said.
    fn end(mut self) -> String {
        fs::write(self.client.outside_path("/run/enough"), "").expect("a host's /run is writable");
        let ended = self.program.wait_within(Duration::from_secs(15));
        assert!(ended.is_some(), "wrk does not end");
        fs::read_to_string(self.client.outside_path("/run/wrk.out")).expect("wrk said something")
    }
}

/// All requests of all runs.
fn requests(told: &str) -> u64 {
    told.lines()
        .filter_map(|line| line.split_once(" requests in "))
        .filter_map(|(count, _)| count.trim().parse::<u64>().ok())
        .sum()
}
