//! The terminal's echo, which ssh turns off where it asks for a passphrase, and
//! turns on again unless it is killed meanwhile.

use std::fs::File;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// A terminal that echoes what is typed, and does so again once this is dropped.
pub struct Echo(Option<(File, Termios)>);

impl Echo {
    /// The terminal as it is now.
    pub fn keep() -> Echo {
        let was = File::open("/dev/tty").ok().and_then(|terminal| {
            let was = tcgetattr(&terminal).ok()?;
            echoes(&was).then_some((terminal, was))
        });
        Echo(was)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let Some((terminal, was)) = &self.0 else {
            return;
        };
        // Whatever else was changed since is not ours to change back.
        if tcgetattr(terminal).is_ok_and(|now| !echoes(&now)) {
            let _ = tcsetattr(terminal, OptionalActions::Now, was);
        }
    }
}

fn echoes(terminal: &Termios) -> bool {
    terminal.local_modes.contains(LocalModes::ECHO)
}
