//! Runs a program that may hang or crash: listens to its lines, and ends it after too long a silence.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How a watched program can fail.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It could not be started.
    #[error("cannot start `{program}`: {reason}")]
    Start {
        /// Program.
        program: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// It said nothing for too long, and was ended.
    #[error("no answer for {seconds} s; it was ended")]
    Silent {
        /// How long.
        seconds: u64,
    },
    /// It ended by itself, badly.
    #[error("it ended with {status}{said}")]
    Ended {
        /// How.
        status: String,
        /// The end of what it wrote to its error output.
        said: String,
    },
}

/// Lines that wait to be looked at; a program that says more waits.
const QUEUE: usize = 1024;
/// What is kept of the error output.
const TAIL: usize = 2000;
/// How long a program may take to end after its last line.
const GRACE: Duration = Duration::from_secs(10);

/// Starts `command`, gives it `input`, and hands each line it prints to `line`. It may be silent for `silence`.
pub fn run(
    command: &mut Command,
    input: Vec<u8>,
    silence: Duration,
    mut line: impl FnMut(&str),
) -> Result<(), WatchError> {
    let program = command.get_program().to_string_lossy().to_string();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|reason| WatchError::Start { program, reason })?;
    // A program that does not read its input, or closes it early, says so in its own way.
    let stdin = child.stdin.take();
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
    let errors = child.stderr.take();
    let errors = thread::spawn(move || tail(errors));
    let (send, receive) = sync_channel::<String>(QUEUE);
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
                if send.send(String::from_utf8_lossy(&bytes).trim_end().to_string()).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
    }
    loop {
        match receive.recv_timeout(silence) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                end(&mut child);
                return Err(WatchError::Silent { seconds: silence.as_secs() });
            }
        }
    }
    match wait(&mut child, GRACE.min(silence)) {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let said = errors.join().unwrap_or_default();
            let said = said.trim();
            let last = said.lines().last().map_or_else(String::new, |l| format!(": {}", l.trim()));
            Err(WatchError::Ended { status: status.to_string(), said: last })
        }
        None => {
            end(&mut child);
            Err(WatchError::Silent { seconds: silence.as_secs() })
        }
    }
}

/// The end of a stream.
fn tail(stream: Option<impl Read>) -> String {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = [0u8; 4096];
    if let Some(mut stream) = stream {
        while let Ok(n) = stream.read(&mut buffer) {
            if n == 0 {
                break;
            }
            kept.extend_from_slice(&buffer[..n]);
            if kept.len() > 2 * TAIL {
                kept.drain(..kept.len() - TAIL);
            }
        }
    }
    String::from_utf8_lossy(&kept).to_string()
}

/// Waits for the end of a program, but not for ever.
fn wait(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < most => thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// Ends a program. One that is stuck inside the driver may not go at once: we do not wait for it.
fn end(child: &mut Child) {
    // It may have ended in this moment; then there is nothing to end.
    let _ = child.kill();
    wait(child, Duration::from_secs(2));
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_arrive_and_input_is_given() {
        let mut lines = Vec::new();
        let input = b"x\ny\n".to_vec();
        run(&mut shell("cat; echo end"), input, Duration::from_secs(20), |l| lines.push(l.to_string()))
            .unwrap();
        assert_eq!(lines, ["x", "y", "end"]);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let start = Instant::now();
        let mut seen = 0;
        let error =
            run(&mut shell("echo one; exec sleep 600"), Vec::new(), Duration::from_millis(300), |_| {
                seen += 1;
            })
            .unwrap_err();
        assert!(matches!(error, WatchError::Silent { .. }), "{error}");
        assert_eq!(seen, 1);
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_crash_is_told_in_one_line() {
        let error =
            run(&mut shell("echo why >&2; exit 7"), Vec::new(), Duration::from_secs(20), |_| {}).unwrap_err();
        assert!(error.to_string().contains('7') && error.to_string().ends_with(": why"), "{error}");
        let error =
            run(&mut shell("kill -SEGV $$"), Vec::new(), Duration::from_secs(20), |_| {}).unwrap_err();
        assert!(error.to_string().contains("signal: 11"), "{error}");
        let error = run(&mut Command::new("/no/such/program"), Vec::new(), Duration::from_secs(5), |_| {})
            .unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/no/such/program`"), "{error}");
    }
}
