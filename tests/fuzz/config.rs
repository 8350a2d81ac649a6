//! What admins write into files, in git's syntax.

use git_claim_api::access::Access;
use proptest::prelude::*;

use super::harness::of;

/// What such files are made of.
pub fn config_pieces() -> impl Strategy<Value = Vec<u8>> {
    of(
        &[
            "[claim]\n",
            "[claimGroup \"",
            "devs",
            "\"]\n",
            "[claimUser \"ann\"]\n",
            "write",
            "read",
            "admin",
            "member",
            "key",
            "ledger",
            "reposDir",
            "maxTtl",
            "plugin",
            " = ",
            "*",
            "@devs",
            "ann, bob",
            "/srv/git",
            "30d",
            "SHA256:",
            "\n",
            "\\",
            "\"",
            "#",
            ";",
            "[core]\n",
            "\t",
            "[include]\n",
            "path = /dev/zero\n",
            "etcd://a:1/b",
            "[claimForgejo]\n",
            "url",
            "http://localhost/",
        ],
        24,
    )
}

/// Nobody whom the file does not name, or everybody in it, gets in by it.
pub fn a_stranger_may(highest: Option<Access>, input: &[u8]) -> bool {
    highest.is_some() && !input.contains(&b'*')
}
