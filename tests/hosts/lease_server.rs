//! A lease server beside a forge that runs nothing of ours: claims go to another
//! host than the commits.

use super::machine::Machine;
use super::readme;

#[test]
fn claims_go_to_the_lease_server_and_commits_to_the_forge() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for name in ["alice", "bob"] {
        machine.add_person(name);
    }
    machine.follow("openssh");
    machine.follow("lease-server");
    machine.ok(
        "root",
        "echo 127.0.0.1 leases.example.org >>/etc/hosts
         sed -i 's/^localhost/localhost,leases.example.org/' /etc/ssh/ssh_known_hosts",
    );
    // The forge: a place that knows git alone.
    machine.ok(
        "root",
        "useradd --create-home --shell /usr/bin/git-shell hub
         usermod -p '*' hub
         install -d -m 700 -o hub /home/hub/.ssh
         cat alice.pub bob.pub >/home/hub/.ssh/authorized_keys
         runuser -u hub -- git init -q --bare /home/hub/app.git",
    );
    for name in ["alice", "bob"] {
        machine.add_worktree(name, "hub@localhost:app.git");
    }
    // As it is, the forge does not know what a claim is.
    machine
        .run("alice", "cd work; git claim GH-42")
        .expect(7, "hub@localhost");
    for name in ["alice", "bob"] {
        for script in readme::commands("lease-server-client") {
            machine.ok(name, &format!("cd work\n{script}"));
        }
    }
    machine.ok("alice", "cd work; git claim GH-42 --ttl 2h");
    machine
        .run("bob", "cd work; git claim GH-42")
        .expect(4, "claimed by alice");
    machine.run("bob", "cd work; git claims").expect(0, "GH-42");
    machine.ok(
        "alice",
        "cd work; git commit -q --allow-empty -m one; git push -q origin main; git unclaim GH-42",
    );
    assert_eq!(
        machine.ok("hub", "git -C app.git log --format=%s main"),
        "one\n"
    );
    assert_eq!(
        machine.ok("git", "git -C acme/website.git for-each-ref"),
        "",
        "nothing was pushed to the lease server"
    );
    machine
        .run("bob", "cd work; git claim --next")
        .expect(1, "nothing says which issue is next");
    machine.ok("bob", "cd work; git claim GH-42");
}
