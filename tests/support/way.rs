//! A way to the forge that goes dead, as where a machine loses its power or its
//! network: no byte gets through any more, and neither end is told.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::client::{Client, Person};
use super::forge::{Forge, REPO};

/// The name under which a person's ssh goes this way.
const HOST: &str = "far";

/// A way, over which as many connections go as like.
pub struct Way {
    port: u16,
    connections: Arc<Mutex<Vec<Connection>>>,
}

/// One that was let through.
struct Connection {
    dead: Arc<AtomicBool>,
    /// Both stay open until the way is gone, whatever becomes of them.
    ends: [TcpStream; 2],
}

impl Way {
    pub fn to(forge: &Forge) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<Connection>>>::default();
        let all = Arc::clone(&connections);
        let sshd = forge.port();
        std::thread::spawn(move || {
            // Until the test has ended.
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(("127.0.0.1", sshd)).unwrap();
                all.lock().unwrap().push(Connection::between(near, far));
            }
        });
        Way { port, connections }
    }

    /// A worktree of `person`, whose remote is behind this way.
    pub fn worktree(&self, forge: &Forge, person: &Person) -> Client {
        let known = forge.dir().join(format!("known-{}", self.port));
        let key = fs::read_to_string(forge.dir().join("sshd/host_key.pub")).unwrap();
        fs::write(&known, format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
        person.knows_host(HOST, self.port, &known);
        person.worktree(&format!("ssh://{HOST}/{REPO}"))
    }

    /// From now on nothing passes on the connections that there are; new ones are
    /// let through. How many there are.
    pub fn go_dead(&self) -> usize {
        let connections = self.connections.lock().unwrap();
        for connection in &*connections {
            connection.dead.store(true, Ordering::SeqCst);
        }
        connections.len()
    }
}

impl Connection {
    fn between(near: TcpStream, far: TcpStream) -> Connection {
        let dead = Arc::<AtomicBool>::default();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let dead = Arc::clone(&dead);
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || carry(from, to, &dead));
        }
        Connection {
            dead,
            ends: [near, far],
        }
    }
}

/// Carries what comes `from` one end, its end too, until the way is dead.
fn carry(mut from: TcpStream, mut to: TcpStream, dead: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer);
        if dead.load(Ordering::SeqCst) {
            return;
        }
        let carried = match read {
            Ok(0) | Err(_) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(bytes) => to.write_all(&buffer[..bytes]),
        };
        if carried.is_err() {
            return;
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        for connection in &*self.connections.lock().unwrap() {
            for end in &connection.ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}
