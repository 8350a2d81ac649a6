//! A cluster of three nodes on loopback, and what happens to clusters: a claim
//! that was acknowledged is never lost, and nobody holds what another holds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use git_claim_plugin::claim::Now;
use git_claim_plugin::ledger::When;
use serde_json::{Value, json};

use crate::engines::Placed;
use crate::etcd::Cluster;
use crate::network::Network;
use crate::support::{Forge, Said};

/// A front end that uses the ledger at `place`.
fn front_end(place: &str) -> Forge<Placed> {
    let place = place.parse().unwrap();
    let repos = vec![("r.git".to_owned(), None)];
    Forge::with(assert_fs::TempDir::new().unwrap(), Placed(place), repos)
}

/// Three nodes with an empty ledger on them.
fn three(options: &[&str]) -> (Cluster, String) {
    let cluster = Cluster::start(3, options);
    let place = with_a_ledger(&cluster);
    (cluster, place)
}

/// Where a new ledger is.
fn with_a_ledger(cluster: &Cluster) -> String {
    cluster.leader();
    let place = cluster.place("claims");
    let when = When {
        clock: &|| Now(0),
        deadline: Instant::now() + Duration::from_secs(10),
    };
    front_end(&place).ledger.create(when).unwrap();
    place
}

/// What front ends have been told, in the order of their own requests.
#[derive(Default)]
struct Told {
    /// Acquired, by issue: the tokens with whom they were given to.
    tokens: BTreeMap<(String, u64), String>,
    refused: u64,
    not_now: u64,
}

/// Has `workers` front ends take and give back issues until `fault` is over.
fn under_load(place: &str, workers: usize, fault: impl FnOnce()) -> Vec<Told> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|number| {
                let is_over = &is_over;
                scope.spawn(move || work(place, number, is_over))
            })
            .collect();
        fault();
        is_over.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    })
}

fn work(place: &str, number: usize, is_over: &AtomicBool) -> Told {
    let forge = front_end(place);
    let name = format!("user{number}");
    let mut told = Told::default();
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let issue = (round % 3).to_string();
        let words = format!("acquire r.git {issue} --ttl 600 --session s --request q{round}");
        let begun = Instant::now();
        let said = forge.ask(&name, &words);
        assert!(begun.elapsed() < IN_TIME, "{said:?}");
        match said.exit {
            0 => {
                let token = said.json()["token"].as_u64().unwrap();
                let before = told.tokens.insert((issue.clone(), token), name.clone());
                assert!(
                    before.is_none() || said.json()["tenure"] == "own",
                    "{said:?}"
                );
                let said = give_back(&forge, &name, &issue);
                told.not_now += u64::from(said.exit == 6);
            }
            4 => told.refused += 1,
            6 => {
                assert_eq!(said.stdout, "", "{said:?}");
                told.not_now += 1;
            }
            _ => panic!("{said:?}"),
        }
    }
    told
}

fn give_back(forge: &Forge<Placed>, name: &str, issue: &str) -> Said {
    let said = forge.ask(name, &format!("release r.git {issue} --session s"));
    // A release without an answer may have been made, and another may hold it.
    assert!(matches!(said.exit, 0 | 4 | 6), "{said:?}");
    said
}

/// No token was given twice, and each that was given is in the history under
/// the name that it was given to.
fn nothing_is_lost(place: &str, told: &[Told]) {
    let mut given: BTreeMap<(String, u64), String> = BTreeMap::new();
    for told in told {
        for (tenure, name) in &told.tokens {
            let other = given.insert(tenure.clone(), name.clone());
            assert!(other.is_none(), "{tenure:?} is {other:?}'s and {name}'s");
        }
    }
    assert!(!given.is_empty());
    let log = front_end(place)
        .ask("root", "log r.git --limit 100000")
        .json();
    let recorded: BTreeMap<(String, u64), String> = log["tenures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tenure| {
            let text = |key: &str| tenure[key].as_str().unwrap().to_owned();
            let token = tenure["token"].as_u64().unwrap();
            ((text("issue"), token), text("holder"))
        })
        .collect();
    for (tenure, name) in &given {
        assert_eq!(recorded.get(tenure), Some(name), "{tenure:?}");
    }
    // What nobody was told of is there once: tokens have no gaps.
    for issue in ["0", "1", "2"] {
        let tokens: Vec<u64> = recorded
            .keys()
            .filter(|(of, _)| of == issue)
            .map(|(_, token)| *token)
            .collect();
        let all: Vec<u64> = (1..=tokens.len() as u64).collect();
        assert_eq!(tokens, all, "issue {issue}");
    }
}

const MOMENT: Duration = Duration::from_millis(500);

/// The deadline of a request, and what a busy machine may add.
const IN_TIME: Duration = Duration::from_secs(15);

#[test]
fn a_killed_leader_and_a_killed_follower_cost_no_claim() {
    let (mut cluster, place) = three(&[]);
    let told = under_load(&place, 4, || {
        std::thread::sleep(MOMENT);
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader();
        std::thread::sleep(MOMENT);
        cluster.begin(leader);
        std::thread::sleep(MOMENT);
        let follower = (cluster.leader() + 1) % 3;
        cluster.kill(follower);
        std::thread::sleep(MOMENT);
        cluster.begin(follower);
        std::thread::sleep(MOMENT);
    });
    nothing_is_lost(&place, &told);
}

#[test]
fn without_a_majority_nothing_is_claimed_and_it_comes_back_by_itself() {
    let (mut cluster, place) = three(&[]);
    let forge = front_end(&place);
    let held = forge.ask("ann", "acquire r.git 1 --session s");
    assert_eq!(held.exit, 0, "{held:?}");
    let leader = cluster.leader();
    let dead = [leader, (leader + 1) % 3];
    dead.iter().for_each(|node| cluster.kill(*node));
    for words in ["acquire r.git 2 --ttl 60 --session s", "list r.git"] {
        let begun = Instant::now();
        let said = forge.ask("bob", words);
        assert_eq!((said.exit, said.stdout.as_str()), (6, ""), "{said:?}");
        assert!(begun.elapsed() < IN_TIME, "{words}");
    }
    dead.iter().for_each(|node| cluster.begin(*node));
    cluster.leader();
    let list = forge.ask("ann", "list r.git").json();
    let leases = list["leases"].as_array().unwrap();
    assert_eq!(leases.len(), 1, "{list}");
    assert_eq!(leases[0]["holder"], "ann");
    let said = forge.ask("bob", "acquire r.git 2 --ttl 60 --session s");
    assert_eq!(said.json()["token"], 1, "{said:?}");
    // All of them at once.
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.begin(node));
    cluster.leader();
    for (issue, holder) in [("1", "ann"), ("2", "bob")] {
        let shown = forge.ask("root", &format!("show r.git {issue}")).json();
        assert_eq!(shown["holder"], holder, "{shown}");
    }
}

#[test]
fn a_node_that_hangs_is_passed_over() {
    let (cluster, place) = three(&[]);
    let leader = cluster.leader();
    let signal = |name: &str| {
        let pid = cluster.nodes[leader].pid().to_string();
        let done = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(done.unwrap().success());
    };
    let told = under_load(&place, 3, || {
        std::thread::sleep(MOMENT);
        signal("-STOP");
        std::thread::sleep(MOMENT * 6);
        signal("-CONT");
        std::thread::sleep(MOMENT);
    });
    nothing_is_lost(&place, &told);
}

#[test]
fn a_leader_that_is_cut_off_costs_no_claim_and_grants_none() {
    let Some(network) = Network::of(3) else {
        return;
    };
    let _inside = network.enter();
    let cluster = Cluster::start_at(network.homes(), &[]);
    let place = with_a_ledger(&cluster);
    let forge = front_end(&place);
    let held = forge.ask("ann", "acquire r.git 9 --ttl 600 --session s");
    assert_eq!(held.exit, 0, "{held:?}");
    let told = under_load(&place, 3, || {
        std::thread::sleep(MOMENT);
        let leader = cluster.leader();
        // A front end on the leader's own machine, which reaches no other.
        let near = format!("etcd://{}/claims", cluster.nodes[leader].home.clients());
        let near = |words: &'static str| {
            let (network, near) = (&network, &near);
            move || {
                let _inside = network.enter_machine(leader);
                let begun = Instant::now();
                (front_end(near).ask("bob", words), begun.elapsed())
            }
        };
        network.cut(leader);
        let unheard: Vec<(Said, Duration)> = std::thread::scope(|scope| {
            let asked = [
                "acquire r.git 8 --session s",
                "acquire r.git 9 --session s",
                "list r.git",
            ]
            .map(|words| scope.spawn(near(words)));
            asked.map(|asked| asked.join().unwrap()).into()
        });
        for (said, time) in unheard {
            assert_eq!((said.exit, said.stdout.as_str()), (6, ""), "{said:?}");
            assert!(time < IN_TIME, "{said:?}");
        }
        // The others go on without it.
        let said = forge.ask("bob", "acquire r.git 9 --session s");
        assert_eq!(said.json()["reason"], "held", "{said:?}");
        let said = forge.ask("cay", "acquire r.git 7 --session s");
        assert_eq!(said.exit, 0, "{said:?}");
        network.mend(leader);
        let end = Instant::now() + Duration::from_secs(60);
        let shown = loop {
            assert!(Instant::now() < end, "it does not come back");
            let show = near("show r.git 7");
            let (said, _) = std::thread::scope(|scope| scope.spawn(show).join().unwrap());
            if said.exit == 0 {
                break said.json();
            }
        };
        assert_eq!(shown["holder"], "cay", "{shown}");
    });
    nothing_is_lost(&place, &told);
    let list = forge.ask("ann", "list r.git").json();
    let leases = list["leases"].as_array().unwrap().iter();
    let held = leases.map(|lease| (lease["issue"].as_str(), lease["holder"].as_str()));
    let held: Vec<_> = held.filter(|(issue, _)| *issue > Some("2")).collect();
    let expected = [("9", "ann"), ("7", "cay")];
    assert_eq!(
        held,
        expected.map(|(issue, holder)| (Some(issue), Some(holder)))
    );
}

#[test]
fn compaction_takes_no_history_away() {
    let (cluster, place) = three(&[]);
    let told = under_load(&place, 3, || {
        for _ in 0..10 {
            std::thread::sleep(MOMENT / 5);
            compact(&cluster);
        }
    });
    nothing_is_lost(&place, &told);
}

/// Has all nodes forget what was there before now.
fn compact(cluster: &Cluster) {
    let node = &cluster.nodes[cluster.leader()];
    let now = node.post("/v3/kv/range", r#"{"key":"YQ=="}"#).unwrap();
    let revision = &now["header"]["revision"];
    node.post(
        "/v3/kv/compaction",
        &json!({ "revision": revision, "physical": true }).to_string(),
    );
}

#[test]
fn a_full_quota_is_not_now_until_there_is_room_again_and_reading_goes_on() {
    let (cluster, place) = three(&["--quota-backend-bytes=131072"]);
    let forge = front_end(&place);
    let mut generation = 0;
    let acquire = "acquire r.git 1 --session s";
    let refused = (1..2_000)
        .map(|_| {
            let said = forge.ask("ann", acquire);
            if said.exit == 0 {
                generation = said.json()["generation"].as_u64().unwrap();
            }
            said
        })
        .find(|said| said.exit != 0)
        .unwrap();
    assert_eq!((refused.exit, refused.stdout.as_str()), (6, ""));
    assert!(
        refused.stderr.contains("no space left by its quota"),
        "{refused:?}"
    );
    let shown = forge.ask("ann", "show r.git 1").json();
    assert_eq!(shown["generation"], generation, "{shown}");
    // What an administrator does then, with `etcdctl`.
    compact(&cluster);
    for node in &cluster.nodes {
        let done = node.post("/v3/maintenance/defragment", "{}");
        assert!(done.is_some());
    }
    assert_eq!(forge.ask("ann", acquire).exit, 6);
    let alarm = |body: &Value| {
        let answer = cluster.nodes[0].post("/v3/maintenance/alarm", &body.to_string());
        answer.unwrap()["alarms"].take()
    };
    // Each node has its own.
    let raised = alarm(&json!({ "action": "GET" }));
    for one in raised.as_array().unwrap() {
        let member = &one["memberID"];
        alarm(&json!({ "action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE" }));
    }
    let said = forge.ask("ann", acquire);
    assert_eq!(said.exit, 0, "{said:?}");
    assert_eq!(said.json()["generation"], generation + 1, "{said:?}");
}

#[test]
fn nodes_of_another_cluster_are_noticed() {
    let (cluster, place) = three(&[]);
    let (other, _) = three(&[]);
    let forge = front_end(&place);
    assert_eq!(forge.ask("ann", "acquire r.git 1 --session s").exit, 0);
    // The same data in another cluster, as a restored backup has it.
    let mixed = format!("etcd://127.0.0.1:{}/claims", other.nodes[0].home.port);
    let meta = Value::from("Y2xhaW1zL21ldGE=");
    let found = cluster.nodes[0].post("/v3/kv/range", &format!(r#"{{"key":{meta}}}"#));
    let value = &found.unwrap()["kvs"][0]["value"];
    other.nodes[0].post(
        "/v3/kv/put",
        &format!(r#"{{"key":{meta},"value":{value}}}"#),
    );
    let said = front_end(&mixed).ask("bob", "acquire r.git 1 --session s");
    assert_eq!((said.exit, said.stdout.as_str()), (6, ""), "{said:?}");
    assert!(said.stderr.contains("another cluster"), "{said:?}");
}

#[test]
fn a_claim_ends_when_etcd_says_so_whatever_front_ends_think() {
    let (_cluster, place) = three(&[]);
    let (early, late) = (front_end(&place), front_end(&place));
    early.step_ms(-3_600_000);
    late.step_ms(3_600_000);
    let took = early
        .ask("ann", "acquire r.git 1 --ttl 2 --session s")
        .json();
    assert_eq!(took["ttl"], 2);
    for forge in [&early, &late] {
        let said = forge.ask("bob", "acquire r.git 1 --ttl 2 --session s");
        assert_eq!(said.exit, 4, "{said:?}");
        assert_eq!(said.json()["reason"], "held");
    }
    // They say the same of it.
    let long = late
        .ask("cay", "acquire r.git 2 --ttl 3600 --session s")
        .json();
    let shown = early.ask("root", "show r.git 2").json();
    let seconds = |json: &Value, key: &str| {
        git_claim_api::time::parse_rfc3339(json[key].as_str().unwrap()).unwrap()
    };
    assert!((seconds(&long, "expires_at") - seconds(&shown, "expires_at")).abs() <= 2);
    assert!((seconds(&long, "now") - seconds(&shown, "now")).abs() <= 60);
    let left = shown["ttl_left_ms"].as_i64().unwrap();
    assert!((3_590_000..=3_600_000).contains(&left), "{shown}");
    let end = Instant::now() + Duration::from_secs(20);
    while early
        .ask("bob", "acquire r.git 1 --ttl 60 --session s")
        .exit
        != 0
    {
        assert!(Instant::now() < end);
        std::thread::sleep(MOMENT / 5);
    }
    let log = late.ask("root", "log r.git 1").json();
    assert_eq!(log["tenures"][1]["how"], "expired", "{log}");
    assert_eq!(early.ask("ann", "renew r.git 1 --session s").exit, 4);
    // The shortest lease is etcd's to say.
    let short = early
        .ask("dan", "acquire r.git 3 --ttl 1 --session s")
        .json();
    assert!(short["ttl"].as_u64().unwrap() >= 1, "{short}");
}
