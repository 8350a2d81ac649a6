//! The loader's log: the system's, through `/dev/log`. Never stderr, which
//! sshd sends to the client.

use std::os::unix::net::UnixDatagram;

use git_claim_api::abi::{GCLAIM_LOG_ERROR, GCLAIM_LOG_INFO, GCLAIM_LOG_WARN};
use git_claim_api::text::escape;

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    /// The level behind a number of the ABI; an unknown one is the least grave.
    pub fn from_abi(number: u32) -> Level {
        match number {
            GCLAIM_LOG_ERROR => Level::Error,
            GCLAIM_LOG_WARN => Level::Warn,
            GCLAIM_LOG_INFO => Level::Info,
            _ => Level::Debug,
        }
    }

    /// syslog's severity.
    const fn severity(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug => 7,
        }
    }
}

const SOCKET: &str = "/dev/log";
/// syslog's facility `daemon`.
const FACILITY: u8 = 3;

/// Sends one line to the system's log. A machine without one, or with a log
/// that does not keep up, must not stop a request: then the line is lost.
pub fn log(level: Level, message: &str) {
    if level == Level::Debug {
        return;
    }
    let line = line(level, std::process::id(), message);
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    if socket.set_nonblocking(true).is_ok() {
        let _ = socket.send_to(line.as_bytes(), SOCKET);
    }
}

/// One line in the form that syslog daemons take on their socket.
fn line(level: Level, pid: u32, message: &str) -> String {
    let priority = FACILITY * 8 + level.severity();
    format!("<{priority}>git-claim-server[{pid}]: {}", escape(message))
}

#[cfg(test)]
mod tests {
    use super::{Level, line};

    #[test]
    fn a_line_cannot_be_forged_by_what_it_quotes() {
        assert_eq!(
            line(Level::Warn, 7, "x\n<0>kernel: y"),
            "<28>git-claim-server[7]: x\\u000a<0>kernel: y"
        );
    }
}
