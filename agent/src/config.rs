//! Every setting of the agent, named once: a flag and its environment variable.

use std::{ffi::OsString, fs, io, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use engine::ids::{ReplicaName, TaskId};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem, pem::PemObject},
};

use crate::{checks::preflight::PreflightArgs, pass::Repeat, probe::ProbeArgs, test_exit::TestExitArgs};

/// Environment variables with this beginning are the agent's own; the program never sees them.
pub const OWN_VARIABLES: &str = "HOLDFAST_AGENT_";
/// The token where it is not in a file. No flag: arguments can be read by every user of the machine.
const TOKEN_VARIABLE: &str = "HOLDFAST_AGENT_TOKEN";

/// Supervises the training processes of one replica of a Holdfast job.
#[derive(Debug, Parser)]
#[command(name = "holdfast-agent", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start PROGRAM when the server says so, watch it, restart it, report it
    #[command(after_long_help = MANUAL)]
    Run(Box<RunArgs>),
    /// Make the health checks here and now, and say what they find; exit code 1 if something is wrong
    Preflight(PreflightArgs),
    /// Test this node, and what is between it and the others that run the same
    #[command(after_long_help = PROBE_MANUAL)]
    Probe(ProbeArgs),
    /// Copy this program into DIRECTORY, for images that do not hold it
    Install {
        /// Where to, a directory that is there
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    /// Test whether a running program saves when it is told that its end is near, and how long that takes
    #[command(after_long_help = TEST_EXIT)]
    TestExit(TestExitArgs),
}

const TEST_EXIT: &str = "\
The program really saves, and goes on afterwards. It is told as at a stop: POST /v1/preempt/notify on 127.0.0.1, then
GET /v1/preempt/status until it has saved, has failed, or the time is over.

Exit codes:
  0 it saved, 1 it did not, 2 wrong usage.";

const MANUAL: &str = "\
What it does:
  Asks the server what this replica shall do and converges: starts PROGRAM once for each local rank, reports exits in
  the same instant with the lines that explain them, restarts in place, and ends everything it started, daemonised
  children included, before it says so. When the server is away training goes on and reports are kept.
  Where the job has health checks they are made before the first start, in a process of their own (see preflight).

What PROGRAM sees:
  The agent's environment without HOLDFAST_AGENT_*, and for each launch RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
  MASTER_ADDR, MASTER_PORT and HOLDFAST_LAUNCH; where Exit ckpt Notification is on, the first local rank also
  HOLDFAST_EXIT_PORT. PYTHONUNBUFFERED=1 is added where it is not set, because what stays in a buffer is lost with a
  crash; set it to an empty text to keep Python's buffering.
  Standard input is empty. SIGTERM comes first, SIGKILL after the launch's grace time.

Where output goes:
  <log dir>/launch-<n>.log, one line each: <microseconds since 1970> <rank> <o|e> <text>. Long logs go on in
  launch-<n>.<number of the first line>.log. Line numbers count all files of a launch from 1.

The token:
  From --token-file, or from the variable HOLDFAST_AGENT_TOKEN; there is no flag for it. HOLDFAST_AGENT_LOG sets what
  the agent logs (error, warn, info, debug).

Exit codes:
  0 done, 1 failed, 2 wrong usage or another agent runs for this replica; otherwise the program's own code (128 + n
  after signal n), 126 or 127 where it could not be started, 143 where the work was cut short.";

const PROBE_MANUAL: &str = "\
What it does:
  Computes on all processors, writes and reads memory, then meets the other processes at the first one's address, exchanges
  data with each and reduces a vector with all. Every result is known beforehand. Transfers are compared with each other.

What it says:
  One line for each fault, `probe: FAIL <test> on <node>: <what>`, and last `probe: PASS` with the slowest transfer.
  All processes of one probe say the same.

Exit codes:
  0 all is well, 1 a fault was found, 2 wrong usage, 124 not done within --limit-seconds.";

/// Settings of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Address of the server: http://HOST:PORT or https://HOST
    #[arg(
        long,
        env = "HOLDFAST_AGENT_SERVER",
        value_name = "URL",
        required_unless_present = "server_file",
        conflicts_with = "server_file"
    )]
    server: Option<String>,

    /// File that holds the server's address; read again for each connection, since the server may come back elsewhere
    #[arg(long, env = "HOLDFAST_AGENT_SERVER_FILE", value_name = "FILE")]
    server_file: Option<PathBuf>,

    /// File with the certificate authorities (PEM) that vouch for a server with https; without it those of this machine
    #[arg(long, env = "HOLDFAST_AGENT_SERVER_CA_FILE", value_name = "FILE")]
    server_ca_file: Option<PathBuf>,

    /// File that holds this replica's token
    #[arg(long, env = "HOLDFAST_AGENT_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Task ID of the attempt
    #[arg(long, env = "HOLDFAST_AGENT_TASK_ID", value_name = "ID")]
    task_id: TaskId,

    /// Name of the replica: master-0, worker-3
    #[arg(long, env = "HOLDFAST_AGENT_REPLICA", value_name = "NAME")]
    replica: ReplicaName,

    /// Where other replicas reach this one; without it the address this machine has towards the server
    #[arg(long, env = "HOLDFAST_AGENT_ADDRESS", value_name = "HOST")]
    address: Option<String>,

    /// Directory for reports that are not acknowledged yet; of this replica alone
    #[arg(long, env = "HOLDFAST_AGENT_STATE_DIR", value_name = "DIR")]
    state_dir: PathBuf,

    /// Directory for the program's output
    #[arg(long, env = "HOLDFAST_AGENT_LOG_DIR", value_name = "DIR")]
    log_dir: PathBuf,

    /// Bytes of output kept for each launch; beyond it the middle is dropped
    #[arg(long, env = "HOLDFAST_AGENT_LOG_LIMIT_BYTES", value_name = "BYTES", default_value_t = 1 << 30,
          value_parser = clap::value_parser!(u64).range(1 << 20..))]
    log_limit_bytes: u64,

    /// How long a program that has ended waits for a server that is away
    #[arg(long, env = "HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", value_name = "SECONDS", default_value_t = 600)]
    offline_limit_seconds: u64,

    /// Repeat the program's output on the agent's own standard output, each line after its [rank<n>]:
    #[arg(long, env = "HOLDFAST_AGENT_PASS_THROUGH")]
    pass_through: bool,

    /// Repeat it at the end of this file likewise; /proc/1/fd/1 is where the first process of a container prints
    #[arg(long, env = "HOLDFAST_AGENT_PASS_THROUGH_FILE", value_name = "FILE")]
    pass_through_file: Option<PathBuf>,

    /// PROGRAM is no rank of a process group: it gets no RANK, WORLD_SIZE, MASTER_ADDR and the like
    #[arg(long, env = "HOLDFAST_AGENT_NO_RANKS")]
    no_ranks: bool,

    /// No health check may take longer than this; each has a limit of its own besides
    #[arg(long, env = "HOLDFAST_AGENT_CHECK_LIMIT_SECONDS", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=600))]
    check_limit_seconds: Option<u64>,

    /// Write the agent's own log as JSON
    #[arg(long, env = "HOLDFAST_AGENT_LOG_JSON")]
    pub log_json: bool,

    /// The training program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Where the server is.
#[derive(Clone, Debug)]
pub enum Server {
    /// Always here.
    Address(String),
    /// Where this file says.
    File(PathBuf),
}

impl Server {
    /// The server's base URL now.
    pub fn url(&self) -> io::Result<String> {
        let text = match self {
            Self::Address(url) => url.clone(),
            Self::File(path) => fs::read_to_string(path)?,
        };
        let text = text.trim().trim_end_matches('/');
        Ok(if text.contains("://") { text.to_owned() } else { format!("http://{text}") })
    }

    /// Those that this machine believes, where that is asked for: hundreds of files are not read for a server without TLS. An address
    /// in a file is that of a server on this machine.
    fn authorities(&self) -> Result<RootCertStore, ConfigError> {
        let mut store = RootCertStore::empty();
        if matches!(self, Self::Address(url) if url.starts_with("https://")) {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(ConfigError::NoAuthority);
            }
        }
        Ok(store)
    }
}

/// The certificates of a file, at least one.
fn authorities_in(path: PathBuf) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) => drop(store.add_parsable_certificates(certificates)),
        Err(source) => return Err(ConfigError::Authorities { path, source }),
    }
    if store.is_empty() {
        return Err(ConfigError::Authorities { path, source: pem::Error::NoItemsFound });
    }
    Ok(store)
}

/// The agent's settings, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server is.
    pub server: Server,
    /// Who vouches for a server with TLS.
    pub authorities: RootCertStore,
    /// This replica's secret.
    pub token: Token,
    /// The attempt.
    pub task_id: TaskId,
    /// The replica.
    pub replica: ReplicaName,
    /// Where other replicas reach this one, if it was given.
    pub address: Option<String>,
    /// For reports that are not acknowledged.
    pub state_dir: PathBuf,
    /// For the program's output.
    pub log_dir: PathBuf,
    /// Bytes of output kept for each launch.
    pub log_limit: u64,
    /// How long a program that has ended waits for a server that is away.
    pub offline_limit: Duration,
    /// Where the program's output is repeated.
    pub repeat: Repeat,
    /// The program is told its rank.
    pub ranks: bool,
    /// The longest any health check may take.
    pub check_limit: Option<Duration>,
    /// Program and arguments; at least one.
    pub program: Vec<OsString>,
}

/// A secret that no log shows.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no token.
    #[error("no token: give --token-file, or set {TOKEN_VARIABLE}")]
    NoToken,
    /// The token's file cannot be read.
    #[error("cannot read the token from {path}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server's address is of a kind the agent does not speak.
    #[error("the server's address `{url}` must begin with http:// or https://")]
    Server {
        /// The address.
        url: String,
    },
    /// The certificate authorities cannot be read.
    #[error("cannot read certificates from {path}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// There is none to believe.
    #[error(
        "no certificate authority is known here, and the server's address is https: give one with --server-ca-file"
    )]
    NoAuthority,
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn new(args: RunArgs) -> Result<Self, ConfigError> {
        let token = match args.token_file {
            Some(path) => {
                fs::read_to_string(&path).map_err(|source| ConfigError::TokenFile { path, source })?
            }
            None => std::env::var(TOKEN_VARIABLE).unwrap_or_default(),
        };
        let token = token.trim();
        // A header can carry printable ASCII only; anything else is no token of ours.
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(ConfigError::NoToken);
        }
        let known = |url: &str| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        let server = match (args.server, args.server_file) {
            (Some(url), _) if url.contains("://") && !known(&url) => return Err(ConfigError::Server { url }),
            (Some(url), _) => Server::Address(url),
            (None, file) => Server::File(file.unwrap_or_default()), // clap asks for one of the two
        };
        let authorities = match args.server_ca_file {
            Some(path) => authorities_in(path)?,
            None => server.authorities()?,
        };
        Ok(Self {
            server,
            authorities,
            token: Token(token.to_owned()),
            task_id: args.task_id,
            replica: args.replica,
            address: args.address,
            state_dir: args.state_dir,
            log_dir: args.log_dir,
            log_limit: args.log_limit_bytes,
            offline_limit: Duration::from_secs(args.offline_limit_seconds),
            repeat: Repeat { stdout: args.pass_through, file: args.pass_through_file },
            ranks: !args.no_ranks,
            check_limit: args.check_limit_seconds.map(Duration::from_secs),
            program: args.program,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_programs_own_flags_are_the_programs() {
        let own = [
            "--server",
            "http://s",
            "--task-id",
            "t",
            "--replica",
            "r",
            "--state-dir",
            "s",
            "--log-dir",
            "l",
        ];
        for dashes in [&[][..], &["--"]] {
            let program = ["python3", "train.py", "--server", "x", "--", "-v"];
            let all = ["holdfast-agent", "run"].iter().chain(&own).chain(dashes).chain(&program);
            let Command::Run(args) = Cli::try_parse_from(all).unwrap().command else { panic!("not run") };
            assert_eq!(args.program, program);
        }
    }

    #[test]
    fn an_address_file_may_hold_a_bare_address() {
        for (text, want) in [("127.0.0.1:3000\n", "http://127.0.0.1:3000"), ("http://h:1/", "http://h:1")] {
            assert_eq!(Server::Address(text.to_owned()).url().unwrap(), want);
        }
    }

    #[test]
    fn a_token_never_shows_in_a_log() {
        assert_eq!(format!("{:?}", Token("secret".to_owned())), "Token(…)");
    }
}
