//! A forge in one process: it loads the plugin once, and serves claims and git
//! to the stock `ssh` client. A forge in any other language does the same
//! through `git_claim_plugin.h`; git-claim-plugin(3) shows it in C.
//!
//! ```text
//! cargo run --example in_process -- SETTINGS HOST_KEY
//! ```
//!
//! SETTINGS is a settings file of git-claim-server, whose `[claimUser]` sections
//! say whose a key is; HOST_KEY is a private key of ssh-keygen. It listens on a
//! free port of this machine, which it prints.
//!
//! ```text
//! connection   SSH: who is asking, by which key, and for what
//! claims       the verb, on a thread that may block
//! git          git's own commands
//! ```

mod claims;
mod connection;
mod git;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use git_claim_server::abi::Instance;
use git_claim_server::request;
use git_claim_server::settings::Settings;
use russh::keys::load_secret_key;
use russh::server::{Config, run_stream};
use russh::{MethodKind, MethodSet};
use tokio::net::TcpListener;

use crate::connection::Connection;

/// What all connections share.
struct Forge {
    settings: Settings,
    plugin: Instance,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [settings, host_key] = args.as_slice() else {
        bail!("usage: in_process SETTINGS HOST_KEY");
    };
    let settings = Settings::load(Some(Path::new(settings)))?;
    // Loaded once, never unloaded. A forge that forks would open it in each child.
    let plugin = request::load(&settings).map_err(|failure| anyhow::anyhow!(failure.error))?;
    let plugin = request::open(&plugin, &settings, settings.ledger()?, false)
        .map_err(|failure| anyhow::anyhow!(failure.error))?;
    let forge = Arc::new(Forge { settings, plugin });

    let config = Arc::new(Config {
        keys: vec![load_secret_key(host_key, None).context("the host key")?],
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // Every client begins with `none`, to learn which methods there are.
        auth_rejection_time_initial: Some(Duration::ZERO),
        ..Config::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        let connection = Connection::new(Arc::clone(&forge), peer.ip());
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            if let Ok(session) = run_stream(config, stream, connection).await {
                // How it ended is of no interest: clients just go.
                let _ = session.await;
            }
        });
    }
}
