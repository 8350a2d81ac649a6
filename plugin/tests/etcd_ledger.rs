//! What the ledger on etcd has to itself: changes without an answer, and many
//! front ends that meet at one issue.

use std::time::{Duration, Instant};

use git_claim_api::ids::{IssueId, RequestId};
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::reply::End;
use git_claim_plugin::claim::{Claim, Ended, Now, Tenure};
use git_claim_plugin::ledger::{
    Contents, EtcdLedger, Ledger, LedgerError, Transaction, Verdict, When,
};
use serde_json::json;

use crate::engines::Etcd;
use crate::etcd::Cluster;

type Forge = crate::support::Forge<Etcd>;

#[test]
fn a_change_without_an_answer_is_made_once() {
    let forge = Forge::new();
    for (lost, words, expected) in [
        (
            1,
            "acquire r.git 1 --ttl 60 --session s",
            json!({"token": 1, "generation": 1, "tenure": "new"}),
        ),
        (
            1,
            "renew r.git 1 --session s",
            json!({"token": 1, "generation": 2}),
        ),
        (
            1,
            "release r.git 1 --session s",
            json!({"token": 1, "generation": 3, "was_held": true}),
        ),
        (
            3,
            "acquire r.git 1 --session s",
            json!({"token": 2, "generation": 4, "tenure": "new"}),
        ),
    ] {
        forge.engine.time.swallow_answers(lost);
        let said = forge.ask("ann", words);
        assert_eq!(said.exit, 0, "{words}: {said:?}");
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&said.json()[key], value, "{words}: {said:?}");
        }
        forge.engine.time.swallow_answers(0);
    }
    let log = forge.ask("ann", "log r.git").json();
    assert_eq!(log["tenures"].as_array().unwrap().len(), 2);
    forge.engine.time.swallow_answers(1);
    let said = forge.ask_as_host("rename r.git other.git");
    assert_eq!(said.json(), json!({ "status": "done", "rows": 1 }));
    assert_eq!(forge.ask("ann", "show other.git 1").json()["token"], 2);
}

#[test]
fn a_renamed_repository_keeps_its_history_and_the_old_name_begins_anew() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 1 --ttl 60 --session s");
    forge.ask("ann", "release r.git 1 --session s");
    assert_eq!(forge.ask_as_host("rename r.git other.git").exit, 0);
    assert_eq!(
        forge.ask("ann", "acquire r.git 1 --session s").json()["token"],
        1
    );
    assert_eq!(
        forge.ask("ann", "acquire other.git 1 --session s").json()["token"],
        2
    );
    let log = forge.ask("ann", "log other.git 1").json();
    assert_eq!(log["tenures"].as_array().unwrap().len(), 2, "{log}");
    // Neither can be put in the other's place.
    for words in ["rename r.git other.git", "rename other.git r.git"] {
        assert_eq!(forge.ask_as_host(words).exit, 1, "{words}");
    }
}

#[test]
fn a_cluster_without_a_ledger_is_refused_and_none_is_made() {
    let cluster = Cluster::start(1, &[]);
    let ledger = open(&cluster.place("claims"));
    for _ in 0..2 {
        let refused = ledger.change(soon(), &mut |_| Ok(Verdict::Commit));
        let Err(LedgerError::Unfit { why, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains("git-claim-server init"), "{why}");
    }
    ledger.create(soon()).unwrap();
    assert!(ledger.create(soon()).is_err());
    ledger
        .change(soon(), &mut |_| Ok(Verdict::Discard))
        .unwrap();
}

fn open(place: &str) -> EtcdLedger {
    let LedgerPlace::Etcd(place) = place.parse().unwrap() else {
        unreachable!()
    };
    EtcdLedger::open(&place, &Default::default()).unwrap()
}

fn soon() -> When<'static> {
    When {
        // Nobody's clock counts.
        clock: &|| Now(0),
        deadline: Instant::now() + Duration::from_secs(30),
    }
}

/// An open-ended tenure.
fn tenure(name: &str, seq: u64) -> Tenure {
    Tenure {
        holder: name.to_owned(),
        profile: None,
        session: None,
        seq: Some(seq),
        acquired_at: 1_700_000_000,
        expires_at: None,
        ttl: None,
        heartbeat_at: None,
        heartbeat_count: 0,
        note: None,
        title: None,
        lease_id: None,
        request: None,
        binding: None,
        recovery: None,
    }
}

/// One more tenure of an issue, whoever held it.
fn begin(ledger: &EtcdLedger, issue: &IssueId, name: &str, request: Option<&RequestId>) {
    ledger
        .change(soon(), &mut |transaction| {
            transaction.claim("r.git", issue)?;
            store(transaction, issue, name, request)?;
            Ok(Verdict::Commit)
        })
        .unwrap();
}

fn store(
    transaction: &mut dyn Transaction,
    issue: &IssueId,
    name: &str,
    request: Option<&RequestId>,
) -> Result<(), LedgerError> {
    let before = transaction.claim("r.git", issue)?;
    let ended: Option<Ended> = before
        .tenure
        .as_ref()
        .map(|tenure| tenure.expired(before.token));
    let mut after = Claim {
        token: before.token + 1,
        generation: before.generation + 1,
        tenure: Some(Tenure {
            request: request.cloned(),
            ..tenure(name, transaction.next_seq()?)
        }),
    };
    transaction.store("r.git", issue, &mut after, ended.as_ref())
}

#[test]
fn a_request_that_another_front_end_serves_meanwhile_begins_one_tenure() {
    let forge = Forge::new();
    let (here, there) = (forge.engine.ledger(), forge.engine.ledger());
    let [one, two]: [IssueId; 2] = ["1", "2"].map(|issue| issue.parse().unwrap());
    let request: RequestId = "q1".parse().unwrap();
    let mut rounds = 0;
    let mut begun = None;
    here.change(soon(), &mut |transaction| {
        rounds += 1;
        begun = transaction.begun_by("r.git", "ann", None, &request)?;
        if begun.is_some() {
            return Ok(Verdict::Discard);
        }
        if rounds == 1 {
            begin(&there, &one, "ann", Some(&request));
        }
        // Nothing of this issue has changed.
        store(transaction, &two, "ann", Some(&request))?;
        Ok(Verdict::Commit)
    })
    .unwrap();
    assert_eq!((rounds, begun), (2, Some((one, 1))));
    assert_eq!(forge.ask("ann", "show r.git 2").json()["token"], 0);
}

#[test]
fn all_of_32_who_meet_at_one_issue_get_on() {
    const EACH: u64 = 8;
    let cluster = Cluster::start(1, &[]);
    let place = cluster.place("claims");
    open(&place).create(soon()).unwrap();
    let issue: IssueId = "42".parse().unwrap();
    let start = Instant::now();
    let slowest = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..32)
            .map(|number| {
                let (place, issue) = (&place, &issue);
                scope.spawn(move || {
                    let name = format!("worker{number}");
                    let mut slowest = Duration::ZERO;
                    for _ in 0..EACH {
                        let begun = Instant::now();
                        begin(&open(place), issue, &name, None);
                        slowest = slowest.max(begun.elapsed());
                    }
                    slowest
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .max()
            .unwrap()
    });
    let rate = (32 * EACH) as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} changes a second, the slowest took {slowest:?}");
    let mut token = 0;
    let mut past = 0;
    open(&place)
        .read(soon(), &mut |view| {
            token = view.claim("r.git", &issue)?.token;
            past = view.history("r.git", Some(&issue), None)?.len() as u64;
            Ok(())
        })
        .unwrap();
    assert_eq!((token, past), (32 * EACH, 32 * EACH - 1));
}

/// A ledger with `live` live claims in `r.git`, `free` that were given back, and
/// `others` in other repositories.
fn with_claims(live: u64, free: u64, others: u64) -> Forge {
    let mut contents = Contents {
        id: "0123456789abcdef".to_owned(),
        ..Contents::default()
    };
    let row = |repo: &str, number: u64, tenure: Option<Tenure>| {
        let claim = Claim {
            token: 1,
            generation: 1,
            tenure,
        };
        let issue = number.to_string().parse().unwrap();
        (repo.to_owned(), issue, claim)
    };
    for number in 0..live {
        let tenure = Some(tenure("ann", number + 1));
        contents.rows.push(row("r.git", number, tenure));
    }
    for number in live..live + free {
        let (repo, issue, claim) = row("r.git", number, None);
        let ended = Ended {
            token: 1,
            tenure: tenure("ann", number + 1),
            ended_at: 1_700_000_001,
            how: End::Released,
            by: None,
            why: None,
        };
        contents.past.push((repo.clone(), issue.clone(), ended));
        contents.rows.push((repo, issue, claim));
    }
    for number in 0..others {
        let repo = format!("other{}.git", number % 1_000);
        let tenure = Some(tenure("ann", number + 1));
        contents.rows.push(row(&repo, number, tenure));
    }
    let engine = Forge::new().engine;
    let engine = Etcd {
        prefix: format!("{}/filled", engine.prefix),
        time: engine.time,
    };
    // Not through the gateway that counts.
    let node = engine.node_place();
    let deadline = Instant::now() + Duration::from_secs(300);
    open(&node).load(&contents, "elsewhere", deadline).unwrap();
    open(&node).retire(soon(), None).unwrap();
    let repos = vec![("r.git".to_owned(), None)];
    Forge::with(assert_fs::TempDir::new().unwrap(), engine, repos)
}

#[test]
fn among_100_000_claims_a_request_asks_for_as_few_keys_as_among_200() {
    let traffic = |forge: &Forge| {
        [
            "list r.git",
            "show r.git 7",
            "acquire r.git new --ttl 600 --session s",
            "renew r.git new --session s",
            "release r.git new --session s",
            "acquire r.git new --session s",
            "log r.git --limit 5",
            "log r.git new --limit 5",
        ]
        .map(|words| {
            forge.engine.time.traffic();
            let said = forge.ask("ann", words);
            assert_eq!(said.exit, 0, "{words}: {said:?}");
            (words, forge.engine.time.traffic())
        })
    };
    // What has ended here is newer than all that was put there.
    let last_two = |forge: &Forge| {
        let log = forge.ask("ann", "log r.git --limit 2").json();
        log["tenures"]
            .as_array()
            .unwrap()
            .iter()
            .all(|tenure| tenure["issue"] == "new")
    };
    let forge = with_claims(20, 180, 0);
    let few = traffic(&forge);
    assert!(last_two(&forge));
    let many = with_claims(20, 2_000, 98_000);
    assert_eq!(traffic(&many), few);
    assert!(last_two(&many));
    assert!(
        few.iter().all(|(_, traffic)| traffic.keys <= 3 * 128),
        "{few:?}"
    );
}

/// A forge whose ledger has a bit of everything.
fn eventful<E: crate::engines::Engine>() -> crate::support::Forge<E> {
    let forge = crate::support::Forge::<E>::new();
    for words in [
        "acquire r.git 1 --ttl 600 --session s --note a%20b",
        "acquire r.git 2 --session s --request q1",
        "release r.git 2 --session s",
        "acquire r.git 2 --session t --branch claim/2 --worktree /w --machine m",
        "acquire r.git 3 --ttl 5 --session s",
        "acquire other.git 1 --session s",
        "release other.git 1 --session s",
    ] {
        assert_eq!(forge.ask("ann", words).exit, 0, "{words}");
    }
    forge.step_ms(6_000);
    forge
}

/// What users see of a ledger, but for what the moment changes.
fn seen<E: crate::engines::Engine>(forge: &crate::support::Forge<E>) -> Vec<serde_json::Value> {
    [
        "list r.git",
        "list r.git --ended",
        "log r.git",
        "log other.git",
        "show r.git 2",
        "show r.git 3",
    ]
    .iter()
    .map(|words| {
        let said = forge.ask("ann", words);
        assert_eq!(said.exit, 0, "{words}: {said:?}");
        let mut json = said.json();
        json.as_object_mut().unwrap().remove("now");
        json
    })
    .collect()
}

#[test]
fn a_ledger_moves_there_and_back_and_nothing_changes() {
    use crate::engines::{Engine as _, Sqlite};
    use crate::support::Forge;

    let from = eventful::<Sqlite>();
    let id = from.ledger_id();
    // In a cluster of its own, where the same time has passed.
    let to = Forge::<Etcd>::new().engine;
    let taken = to.place();
    let place = format!("{taken}/moved");
    let there = Etcd {
        prefix: format!("{}/moved", to.prefix),
        time: to.time,
    };
    let repos = || vec![("r.git".to_owned(), None), ("other.git".to_owned(), None)];
    let there = Forge::with(assert_fs::TempDir::new().unwrap(), there, repos());
    there.step_ms(6_000);
    let refused = from.ask_as_host(&format!("migrate {taken}"));
    assert_eq!(refused.exit, 6, "{refused:?}");
    assert!(refused.stderr.contains("has another ledger"), "{refused:?}");
    // It was put back into service.
    assert_eq!(from.ask("ann", "renew r.git 2 --session t").exit, 0);
    let before = seen(&from);
    let moved = from.ask_as_host(&format!("migrate {place}"));
    assert_eq!(moved.json(), json!({ "status": "done", "rows": 4 }));
    for words in ["acquire r.git 9 --session s", "list r.git"] {
        let said = from.ask("ann", words);
        assert_eq!(said.exit, 6, "{said:?}");
        assert!(
            said.stderr.contains(&format!("has moved to {place}")),
            "{said:?}"
        );
    }
    assert_eq!(there.ledger_id(), id);
    assert_eq!(seen(&there), before);
    // Tokens go on, and so does the order of tenures.
    assert_eq!(
        there.ask("bob", "acquire other.git 1 --session s").json()["token"],
        2
    );
    assert_eq!(
        there.ask("bob", "acquire r.git 4 --session s").json()["token"],
        1
    );
    let list = there.ask("bob", "list r.git").json();
    let order: Vec<&str> = list["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| lease["issue"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["1", "2", "4"]);
    let before = seen(&there);
    let path = from.engine.path.clone();
    let Forge { dir, ledger, .. } = from;
    drop(ledger);
    let back = there.ask_as_host(&format!("migrate {}", path.display()));
    assert_eq!(
        back.json(),
        json!({ "status": "done", "rows": 5 }),
        "{back:?}"
    );
    assert_eq!(there.ask("ann", "list r.git").exit, 6);
    let here = Forge::with(dir, Sqlite { path }, repos());
    here.step_ms(6_000);
    assert_eq!(here.ledger_id(), id);
    assert_eq!(seen(&here), before);
}

#[test]
fn a_password_is_kept_in_a_file_of_ones_own() {
    use git_claim_api::settings::EtcdFiles;
    use std::os::unix::fs::PermissionsExt as _;

    let cluster = Cluster::start(1, &["--bcrypt-cost=4"]);
    let place = cluster.place("claims");
    open(&place).create(soon()).unwrap();
    for (path, body) in [
        ("user/add", json!({ "name": "root", "password": "se:cret" })),
        ("role/add", json!({ "name": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("enable", json!({})),
    ] {
        let done = cluster.nodes[0].post(&format!("/v3/auth/{path}"), &body.to_string());
        assert!(done.is_some(), "{path}");
    }
    let change = |ledger: &EtcdLedger| ledger.change(soon(), &mut |_| Ok(Verdict::Discard));
    let refused = change(&open(&place)).unwrap_err().to_string();
    assert!(refused.contains("user name is empty"), "{refused}");

    let dir = assert_fs::TempDir::new().unwrap();
    let file = dir.path().join("password");
    let files = EtcdFiles {
        password: Some(file.clone()),
        ..EtcdFiles::default()
    };
    let LedgerPlace::Etcd(parsed) = place.parse().unwrap() else {
        unreachable!()
    };
    let open = || EtcdLedger::open(&parsed, &files);
    for (text, mode, said) in [
        ("root:se:cret\n", 0o644, "make it 0600"),
        ("root\n", 0o600, "no line name:password"),
    ] {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
        assert!(!refused.contains("se:cret"), "{refused}");
    }
    std::fs::write(&file, "root:wrong\n").unwrap();
    let refused = change(&open().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("authentication failed"), "{refused}");
    std::fs::write(&file, "root:se:cret\n").unwrap();
    change(&open().unwrap()).unwrap();
}
