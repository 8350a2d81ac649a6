//! The C ABI, from C: a program compiled with `cc` against the header.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::time::Instant;

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use assert_fs::TempDir;
use git_claim_api::abi::*;

use crate::support::client::{stderr, stdout};
use crate::support::forge::git;
use crate::support::programs;

/// The C host, compiled in `dir`; C11 without a warning.
fn compile(dir: &Path) -> Command {
    let host = dir.join("host");
    let source = programs::source();
    Command::new(programs::need("cc"))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(source.join("plugin/include"))
        .arg(source.join("tests/abi/host.c"))
        .arg("-o")
        .arg(&host)
        .arg("-ldl")
        .assert()
        .success();
    Command::new(host)
}

/// Plays one scene of the C host against the plugin.
fn play(scene: &str) -> Assert {
    let dir = TempDir::new().unwrap();
    let host = compile(dir.path());
    play_in(dir.path(), host, scene)
}

/// The same, with a folder for what it needs.
fn play_in(dir: &Path, mut host: Command, scene: &str) -> Assert {
    let repo = dir.join("r.git");
    std::fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "--bare"]);
    host.arg("run")
        .arg(programs::plugin())
        .arg(dir)
        .arg(scene)
        .assert()
        .success()
}

/// The sizes and offsets of the Rust types, named as the C host names them.
macro_rules! layout {
    ($($type:ident { $($field:ident),* })*) => {
        BTreeMap::from([$(
            (stringify!($type).to_owned(), size_of::<$type>()),
            $((
                concat!(stringify!($type), ".", stringify!($field)).to_owned(),
                offset_of!($type, $field),
            ),)*
        )*])
    };
}

#[test]
fn sizes_and_offsets_are_those_of_the_header() {
    let dir = TempDir::new().unwrap();
    let assert = compile(dir.path()).arg("layout").assert().success();
    let in_c: BTreeMap<String, usize> = stdout(&assert)
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect();
    let in_rust = layout! {
        gclaim_str { ptr, len }
        gclaim_sink { ctx, write }
        gclaim_host {
            size, abi_minor, ctx, log, now, resolve_repo, authorize, write, read, cancelled,
            repo_path, resolve_issue, event
        }
        gclaim_config { size, flags, settings }
        gclaim_request { size, flags, call, command, user, key, peer, deadline_ms, reserved }
        gclaim_query { size, flags, call, name, params, user, deadline_ms, reserved }
        gclaim_plugin { size, abi_minor, describe, open, exec, query, close }
    };
    assert_eq!(in_c, in_rust);
}

#[test]
fn a_c_host_acquires_and_meets_a_conflict() {
    let said = stdout(&play("acquire"));
    assert!(said.contains(r#""status":"acquired""#), "{said}");
    assert!(said.contains(r#""title":"From C""#), "{said}");
    assert!(said.contains(r#""token":2"#), "{said}");
    assert_eq!(said.matches("error: ").count(), 2, "{said}");
}

#[test]
fn a_c_host_lists() {
    let said = stdout(&play("list"));
    let list = said.lines().rfind(|line| line.starts_with('{')).unwrap();
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    assert_eq!(list["leases"][0]["issue"], "1");
    assert_eq!(list["leases"][1]["issue"], "2");
    assert_eq!(list["leases"][1]["holder"], "ann");
}

#[test]
fn denied_and_unknown_are_one_answer() {
    let said = stdout(&play("denied"));
    let answers: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(answers, ["error: repository not found"; 2], "{said}");
}

#[test]
fn a_c_host_asks_for_its_pages() {
    let said = stdout(&play("query"));
    let answers: Vec<serde_json::Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|answer: &serde_json::Value| answer.get("status").is_none())
        .collect();
    let [claims, claim] = answers.as_slice() else {
        panic!("two answers: {said}");
    };
    // The host's own tracker has no order: what is held is known all the same.
    assert_eq!(claims["listing"], "none");
    assert_eq!(claims["issues"][0]["issue"], "1");
    assert_eq!(claims["issues"][0]["title"], "From C");
    assert_eq!(claims["issues"][0]["state"], "open");
    assert_eq!(claims["issues"][0]["claim"]["holder"], "bob");
    assert_eq!(claims["issues"][0]["claim"]["same_principal"], false);
    assert_eq!(claim["claim"]["same_principal"], true);
    assert_eq!(claim["tenures"][0]["holder"], "bob");
    assert_eq!(claim["tenures"][1]["holder"], "ann");
    assert_eq!(claim["tenures"][1]["note"], "busy");
    assert_eq!(claim["tenures"][1]["how"], "released");
}

#[test]
fn an_instance_does_not_work_in_a_forked_child() {
    play("fork");
}

#[test]
fn an_older_hosts_shorter_struct_is_enough() {
    play("short");
}

#[test]
fn four_threads_share_an_instance() {
    play("threads");
}

#[test]
fn a_host_that_breaks_the_contract_is_refused() {
    let played = play("contract");
    assert!(!stderr(&played).contains("panic"), "{}", stderr(&played));
}

/// Structs of any size, strings that are none: each call is answered, and none of
/// them is a panic.
#[test]
fn structs_of_any_size_are_answered() {
    let dir = memory();
    let host = compile(dir.path());
    let began = Instant::now();
    let said = stdout(&play_in(dir.path(), host, "fuzz"));
    let inputs = said.lines().next_back().unwrap();
    println!("structs: {inputs} in {:.1?}", began.elapsed());
}

/// A folder in memory, where there is such a place: the disk is not what is tried.
fn memory() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

/// No byte is read or written that is not the plugin's to touch, and none is lost:
/// what is left at the end is what a process has once.
#[test]
fn valgrind_has_nothing_to_say() {
    for scene in [
        "acquire", "list", "denied", "fork", "short", "threads", "query", "contract", "fuzz",
    ] {
        let dir = TempDir::new().unwrap();
        let host = compile(dir.path());
        let mut valgrind = Command::new(programs::need("valgrind"));
        valgrind
            .args([
                "--quiet",
                "--error-exitcode=99",
                "--exit-on-first-error=yes",
            ])
            .args([
                "--leak-check=full",
                "--show-leak-kinds=definite,indirect,possible",
            ])
            .arg("--errors-for-leak-kinds=definite,indirect,possible")
            .arg(host.get_program())
            .env("FUZZ_INPUTS", "200");
        let played = play_in(dir.path(), valgrind, scene);
        assert!(
            !stderr(&played).contains("=="),
            "{scene}: {}",
            stderr(&played)
        );
    }
}

#[test]
fn a_process_does_not_grow_over_100_000_calls() {
    let dir = memory();
    let host = compile(dir.path());
    let said = stdout(&play_in(dir.path(), host, "many"));
    let resident: Vec<u64> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap().1.parse().unwrap())
        .collect();
    let &[early, late] = resident.as_slice() else {
        panic!("{said}");
    };
    // 90,000 calls more; SQLite keeps up to 2 MiB of pages.
    assert!(late < early + 4 * 1024, "KiB: {resident:?}");
}

#[test]
fn exactly_one_symbol_is_exported() {
    let assert = Command::new(programs::need("nm"))
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(programs::plugin())
        .assert()
        .success();
    let symbols = stdout(&assert);
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, [GCLAIM_ENTRY]);
}

#[test]
fn the_plugin_is_never_unloaded() {
    let assert = Command::new(programs::need("readelf"))
        .arg("-d")
        .arg(programs::plugin())
        .assert()
        .success();
    assert!(stdout(&assert).contains("NODELETE"));
}
