//! Every setting of the `holdfast` program, named once: flag, environment variable and, for `serve`, the key in the file that
//! `--config` names. A flag wins over the environment, the environment over the file, the file over the default.

mod clusters;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use engine::{job::HEALTH_CHECKS, nodes::standing::NodeRules};

pub use self::clusters::{ClusterConfig, ClusterKindConfig, KubernetesConfig, LocalConfig};

/// Why a Kubernetes cluster without an agent cannot be used.
pub(crate) const NO_AGENT: &str = "pods need the agent: name an image whose entrypoint it is with agent-image, or its path in the jobs' images with agent-in-image";

/// Keeps training jobs running: create, watch, recover, prove.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the web console, the REST API and the agents, and keep jobs running.
    ///
    /// Without any option it serves http://127.0.0.1:3000, keeps everything below ./data in one SQLite file, and runs jobs
    /// as processes of this machine on four nodes of two slots. Stopping the server leaves the jobs running; the next start
    /// finds them again.
    Serve(Box<Serve>),
    /// Say what a log shows: failure type, evidence, and what the built-in policy would do first.
    Classify(Classify),
    /// Accounts of people.
    #[command(subcommand)]
    User(User),
    /// Tokens for programs that use the REST API.
    #[command(subcommand)]
    Token(Token),
}

/// Where everything is kept.
#[derive(Clone, Debug, Args)]
pub struct Storage {
    /// Directory of the database, the logs and relative checkpoint directories; made when it is missing
    #[arg(long, env = "HOLDFAST_DATA", value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
    /// Database: sqlite://FILE or postgres://USER:PASSWORD@HOST/NAME [default: holdfast.db in the data directory]
    #[arg(long, env = "HOLDFAST_DATABASE", value_name = "URL", hide_env_values = true, value_parser = database)]
    pub database: Option<String>,
}

impl Storage {
    /// The database's address, the default one included.
    pub fn database_url(&self) -> String {
        self.database
            .clone()
            .unwrap_or_else(|| format!("sqlite://{}", self.data.join("holdfast.db").display()))
    }
}

/// How the program speaks of itself.
#[derive(Clone, Debug, Args)]
pub struct Logging {
    /// Form of the log on standard error
    #[arg(long, env = "HOLDFAST_LOG_FORMAT", value_name = "FORMAT", default_value = "human")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or by module as in info,server::driver=debug
    #[arg(long, env = "HOLDFAST_LOG", value_name = "LEVELS", default_value = "info")]
    pub log: String,
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Clusters that jobs can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterChoice {
    /// Processes of this machine.
    Local,
    /// PyTorchJobs and RayJobs of a Kubernetes cluster, with the Kubeflow training operator, KubeRay or both.
    Kubernetes,
}

/// Settings of the server.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// TOML file with these settings, keyed like the flags: listen = "127.0.0.1:3000", local-nodes = 8. Several clusters are [[cluster]]
    /// tables with name, kind and the rest; then no flag says anything about a cluster
    #[arg(long, env = "HOLDFAST_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to serve; port 0 takes a free one. Beyond loopback everybody has to sign in
    #[arg(long, env = "HOLDFAST_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:3000", value_parser = listen)]
    pub listen: SocketAddr,
    /// Address that browsers use where a proxy stands before the server: https://holdfast.example.org
    #[arg(long, env = "HOLDFAST_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    pub public_url: Option<PublicUrl>,
    /// Beyond loopback `/metrics` asks for a token; this opens it to whoever reaches the server
    #[arg(long, env = "HOLDFAST_METRICS_OPEN", value_name = "true|false", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub metrics_open: bool,
    /// File to write the bound address to (HOST:PORT), once it is served
    #[arg(long, env = "HOLDFAST_ADDR_FILE", value_name = "FILE")]
    pub addr_file: Option<PathBuf>,
    /// Where everything is kept.
    #[command(flatten)]
    pub storage: Storage,
    /// Directory of the browser's files [default: site beside the program, else target/site]
    #[arg(long, env = "HOLDFAST_SITE", value_name = "DIR")]
    pub site: Option<PathBuf>,
    /// Clusters of the configuration file; empty where the flags below describe the one there is.
    #[arg(skip)]
    clusters: Vec<ClusterConfig>,
    /// What jobs run on
    #[arg(long, env = "HOLDFAST_CLUSTER", value_name = "KIND", default_value = "local")]
    pub cluster: ClusterChoice,
    /// Where that is this machine.
    #[command(flatten)]
    pub local: LocalConfig,
    /// The agent that supervises each local replica [default: holdfast-agent beside this program]
    #[arg(long, env = "HOLDFAST_AGENT_PROGRAM", value_name = "PATH")]
    pub agent_program: Option<PathBuf>,
    /// Where that is a Kubernetes cluster.
    #[command(flatten)]
    pub kubernetes: KubernetesConfig,
    /// Maximum Task Restart Attempts that the form is prefilled with
    #[arg(long, env = "HOLDFAST_FORM_MAX_TASK_RESTARTS", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=50))]
    pub form_max_task_restarts: u32,
    /// Seconds from a launch until hang detection starts, where a job does not say
    #[arg(long, env = "HOLDFAST_HANG_START_AFTER_SECONDS", value_name = "N", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub hang_start_after_seconds: u32,
    /// Health checks before training, where a job does not say: names with commas between them, or `off`
    #[arg(long, env = "HOLDFAST_HEALTH_CHECKS", value_name = "NAMES", value_delimiter = ',', value_parser = health_check, default_values = HEALTH_CHECKS)]
    pub health_checks: Vec<String>,
    /// When nodes are kept out for every job.
    #[command(flatten)]
    pub nodes: Nodes,
    /// When nodes are diagnosed by themselves.
    #[command(flatten)]
    pub diagnosing: Diagnosing,
    /// How the program speaks of itself.
    #[command(flatten)]
    pub logging: Logging,
}

/// Turns the health checks off where it stands for their names.
pub const NO_CHECKS: &str = "off";

fn health_check(name: &str) -> Result<String, String> {
    if name == NO_CHECKS || HEALTH_CHECKS.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("there is no such health check; use `{NO_CHECKS}` or any of: {}", HEALTH_CHECKS.join(", ")))
}

/// When nodes are diagnosed by themselves, and with what test.
#[derive(Clone, Debug, Args)]
pub struct Diagnosing {
    /// Diagnose the nodes before a resubmission after a hang, where a job does not say and its cluster can
    #[arg(long, env = "HOLDFAST_DIAGNOSE_AFTER_HANG", value_name = "true|false", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub diagnose_after_hang: bool,
    /// The test that every node runs in such a diagnosis, as one line of a shell; it has 120 seconds and exits with 0 where the nodes are well [default: holdfast-agent probe]
    #[arg(long, env = "HOLDFAST_DIAGNOSE_COMMAND", value_name = "COMMAND", value_parser = test_command)]
    pub diagnose_command: Option<TestCommand>,
}

/// Program and arguments of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCommand(pub Vec<String>);

fn test_command(line: &str) -> Result<TestCommand, String> {
    let words = app::forms::lines::read_command(line)
        .filter(|words| words.first().is_some_and(|one| !one.is_empty()));
    words
        .map(TestCommand)
        .ok_or_else(|| "is no command: name a program and its arguments, with every quote closed".to_owned())
}

/// When nodes are quarantined by themselves, and how many.
#[derive(Clone, Copy, Debug, Args)]
pub struct Nodes {
    /// Strikes that count before a node is quarantined
    #[arg(long, env = "HOLDFAST_NODE_STRIKES", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub node_strikes: u32,
    /// Days for which a strike counts, and for which a node is on trial after its quarantine
    #[arg(long, env = "HOLDFAST_NODE_STRIKE_DAYS", value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub node_strike_days: u32,
    /// Hours that a quarantine lasts which began by itself
    #[arg(long, env = "HOLDFAST_NODE_QUARANTINE_HOURS", value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8_760))]
    pub node_quarantine_hours: u32,
    /// Share of a cluster's nodes that may be quarantined at once by themselves, at least one node and never more than half
    #[arg(long, env = "HOLDFAST_NODE_CAP_PERCENT", value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub node_cap_percent: u32,
}

impl Nodes {
    /// The same as the engine takes it.
    pub fn rules(&self) -> NodeRules {
        NodeRules {
            strikes: self.node_strikes,
            strike_seconds: u64::from(self.node_strike_days) * 86_400,
            quarantine_seconds: u64::from(self.node_quarantine_hours) * 3_600,
            cap_percent: self.node_cap_percent,
        }
    }
}

/// Settings of `classify`.
#[derive(Clone, Debug, Args)]
pub struct Classify {
    /// Answer with one JSON object
    #[arg(long)]
    pub json: bool,
    /// Read one object {id, log, exit_code?, signal?} a line from standard input and answer each with one line
    #[arg(long, conflicts_with_all = ["json", "exit_code", "file"])]
    pub jsonl: bool,
    /// How the program ended; -9 and 137 are the same death by signal
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub exit_code: Option<i64>,
    /// The log [default: standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// What can be done with accounts.
#[derive(Clone, Debug, Subcommand)]
pub enum User {
    /// Add an account. Prints a new password, unless one is given on standard input.
    Add {
        /// Its name: 1 to 64 letters, digits and . _ @ -
        name: String,
        /// Read the password (its first line) from standard input
        #[arg(long)]
        password_stdin: bool,
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
    /// List the accounts: since when each is there, and what its API tokens are called.
    List {
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
    /// Remove an account with its sessions and API tokens, at once on all servers. Its jobs stay and run on.
    Remove {
        /// Its name
        name: String,
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
    /// Give an account another password and end its sessions; its API tokens stay. Prints a new password, unless one is given on standard input.
    Password {
        /// Its name
        name: String,
        /// Read the password (its first line) from standard input
        #[arg(long)]
        password_stdin: bool,
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
}

/// What can be done with API tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum Token {
    /// Make a token and print it. It is shown this once.
    Create {
        /// The account it acts for
        #[arg(long)]
        user: String,
        /// What it is for
        #[arg(long, default_value = "cli")]
        name: String,
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
    /// Revoke an account's tokens of one name, at once on all servers.
    Revoke {
        /// The account they act for
        #[arg(long)]
        user: String,
        /// What they were said to be for when they were made
        #[arg(long, value_name = "TOKEN")]
        name: String,
        /// Where everything is kept.
        #[command(flatten)]
        storage: Storage,
    },
}

/// The address that browsers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// `https://holdfast.example.org`, without a path.
    pub origin: String,
    /// `holdfast.example.org`, with the port where it is not the scheme's own.
    pub authority: String,
    /// Whether it is https.
    pub secure: bool,
}

/// Why the command line, or the file it names, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// A flag or its value.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    /// The configuration file.
    #[error("configuration file {}: {text}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        text: String,
    },
}

/// Reads the command line, the environment and the configuration file.
///
/// # Errors
/// Any value that is not allowed; the text names the flag and what is.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, UsageError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = Cli::try_parse_from(&args)?;
    let Command::Serve(settings) = &cli.command else { return Ok(cli) };
    let Some(path) = &settings.config else { return Ok(cli) };
    let wrong = |text| UsageError::File { path: path.clone(), text };
    let file = read_file(path).map_err(wrong)?;
    // After `holdfast serve` and before the flags, so that a flag given again wins.
    let (program, flags) = args.split_at(2.min(args.len()));
    let all = program.iter().cloned().chain(file.flags).chain(flags.iter().cloned());
    let command = Cli::command().mut_subcommand("serve", |serve| serve.args_override_self(true));
    let matches = command.try_get_matches_from(all)?;
    let mut cli = <Cli as clap::FromArgMatches>::from_arg_matches(&matches)?;
    if let (Command::Serve(serve), Some(given)) = (&mut cli.command, matches.subcommand_matches("serve"))
        && !file.clusters.is_empty()
    {
        clusters::beside_flags(given).map_err(wrong)?;
        serve.clusters = file.clusters;
    }
    Ok(cli)
}

/// What a configuration file holds.
#[derive(Default)]
struct FromFile {
    /// Settings as flags, those left out that the environment sets.
    flags: Vec<OsString>,
    /// Its `[[cluster]]` tables.
    clusters: Vec<ClusterConfig>,
}

fn read_file(path: &std::path::Path) -> Result<FromFile, String> {
    let text = std::fs::read_to_string(path).map_err(|why| why.to_string())?;
    let table: toml::Table = toml::from_str(&text).map_err(|why| why.to_string())?;
    let command = Cli::command();
    let serve = command.find_subcommand("serve").ok_or("there is nothing to set")?;
    let mut file = FromFile::default();
    for (key, value) in table {
        if key == clusters::KEY
            && let Some(read) = clusters::read(&value)
        {
            file.clusters = read?;
            continue;
        }
        let arg = serve
            .get_arguments()
            .find(|arg| arg.get_long() == Some(key.replace('_', "-").as_str()))
            .filter(|arg| arg.get_long() != Some("config"))
            .ok_or_else(|| format!("`{key}` is no setting; `holdfast serve --help` lists them"))?;
        if arg.get_env().is_some_and(|name| std::env::var_os(name).is_some()) {
            continue;
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(value) if is_switch(arg) => value.to_string(),
            other => return Err(format!("`{key}` is a {}; use a text or a whole number", other.type_str())),
        };
        file.flags.push(format!("--{}={value}", key.replace('_', "-")).into());
    }
    Ok(file)
}

fn is_switch(arg: &clap::Arg) -> bool {
    arg.get_possible_values().iter().any(|value| value.matches("true", false))
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| "use ADDRESS:PORT, as in 127.0.0.1:3000 or [::]:3000".to_owned())
}

fn database(text: &str) -> Result<String, String> {
    let known = ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    // The text may hold a password, so the answer does not repeat it.
    known.then(|| text.to_owned()).ok_or_else(|| "use sqlite://FILE or postgres://…".to_owned())
}

fn namespace(text: &str) -> Result<String, String> {
    let allowed = "use 1 to 63 of a-z, 0-9 and -, with no dash at an end";
    engine::ids::is_dns_label(text).then(|| text.to_owned()).ok_or_else(|| allowed.to_owned())
}

fn absolute(text: &str) -> Result<String, String> {
    text.starts_with('/').then(|| text.to_owned()).ok_or_else(|| "use an absolute path".to_owned())
}

fn agent_server_url(text: &str) -> Result<String, String> {
    Ok(public_url(text)?.origin)
}

fn public_url(text: &str) -> Result<PublicUrl, String> {
    const USE: &str = "use http:// or https:// and a host, without a path";
    let url: http::Uri = text.trim_end_matches('/').parse().map_err(|_| USE.to_owned())?;
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else { return Err(USE.into()) };
    let plain = matches!(scheme, "http" | "https") && url.path() == "/" && url.query().is_none();
    if !plain || authority.as_str().contains('@') {
        return Err(USE.into());
    }
    let authority = authority.as_str().to_ascii_lowercase();
    Ok(PublicUrl { origin: format!("{scheme}://{authority}"), authority, secure: scheme == "https" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(args: &[&str]) -> Result<Serve, String> {
        let args = ["holdfast", "serve"].iter().chain(args).map(OsString::from);
        match parse(args).map_err(|why| why.to_string())?.command {
            Command::Serve(serve) => Ok(*serve),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn every_flag_of_the_server_has_an_environment_variable_of_its_name() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for arg in serve.get_arguments().filter(|arg| arg.get_id() != "help") {
            let long = arg.get_long().unwrap();
            let want = format!("HOLDFAST_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(want.as_str()), "--{long}");
            assert!(arg.get_help().is_some(), "--{long} says what it is");
        }
        Cli::command().debug_assert();
    }

    #[test]
    fn what_the_chart_and_the_image_set_are_settings() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let is_flag = |flag: &str| serve.get_arguments().any(|arg| arg.get_long() == Some(flag));
        let is_variable =
            |name: &str| serve.get_arguments().any(|arg| arg.get_env().is_some_and(|env| env == name));
        let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/");
        let mut found = 0;
        for file in ["holdfast/templates/server.yaml", "server.Containerfile"] {
            let text = std::fs::read_to_string(format!("{deploy}{file}")).unwrap();
            let counts =
                |line: &&str| !["#", "RUN "].iter().any(|begin| line.trim_start().starts_with(begin));
            let lines = || text.lines().filter(counts);
            let rest = |line: &str, begin: &str| line.trim().strip_prefix(begin).map(str::to_owned);
            for flag in lines().filter_map(|line| rest(line, "- --")) {
                let name = flag.split('=').next().unwrap();
                assert!(is_flag(name), "{file}: --{name}");
                found += 1;
            }
            let words = lines().flat_map(|line| line.split(|c: char| !c.is_ascii_uppercase() && c != '_'));
            for name in words.filter(|word| word.starts_with("HOLDFAST_")) {
                assert!(is_variable(name), "{file}: {name}");
                found += 1;
            }
        }
        assert!(found > 15, "{found} were found");
    }

    #[test]
    fn a_file_fills_in_what_no_flag_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("holdfast.toml");
        let text = "local-nodes = 8\nlocal_slots = 3\nlisten = \"localhost:0\"\nmetrics-open = true\n";
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let config = serve(&["--config", file, "--local-nodes", "5"]).unwrap();
        assert_eq!((config.local.nodes, config.local.slots), (5, 3));
        assert_eq!(config.listen.to_string(), "127.0.0.1:0");
        assert!(config.metrics_open && serve(&["--metrics-open"]).unwrap().metrics_open);
        assert!(!serve(&["--config", file, "--metrics-open=false"]).unwrap().metrics_open);
    }

    #[test]
    fn a_bad_setting_is_named_with_what_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("holdfast.toml");
        let file_name = file.to_str().unwrap();
        for (text, want) in [
            ("locale = 3", "`locale` is no setting"),
            ("config = \"x\"", "`config` is no setting"),
            ("local-nodes = true", "`local-nodes` is a boolean"),
            ("local-nodes = 0", "1..=64"),
            ("listen = ", "TOML"),
        ] {
            std::fs::write(&file, text).unwrap();
            let why = serve(&["--config", file_name]).unwrap_err();
            assert!(why.contains(want), "{text}: {why}");
        }
        for (flags, want) in [
            (["--listen", "3000"], "127.0.0.1:3000"),
            (["--database", "mysql://u:secret@h/d"], "use sqlite://FILE"),
            (["--public-url", "https://h/console"], "without a path"),
            (["--cluster", "mars"], "local"),
            (["--kube-namespace", "train,Other"], "a-z"),
            (["--agent-in-image", "bin/agent"], "absolute"),
            (["--agent-server-url", "h:1"], "http"),
            (["--agent-server-url", "https://h/agents"], "without a path"),
        ] {
            let why = serve(&flags).unwrap_err();
            assert!(why.contains(want), "{flags:?}: {why}");
        }
    }

    #[test]
    fn several_clusters_come_from_the_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("holdfast.toml");
        let tables = "[[cluster]]\nname = \"here\"\nkind = \"local\"\nslots = 3\n\
                      [[cluster]]\nname = \"gpu-a\"\nkind = \"kubernetes\"\nagent-image = \"i\"\n";
        std::fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{tables}")).unwrap();
        let name = file.to_str().unwrap();
        let names =
            |serve: &Serve| -> Vec<_> { serve.clusters().into_iter().map(|cluster| cluster.name).collect() };
        assert_eq!(names(&serve(&["--config", name, "--metrics-open"]).unwrap()), ["here", "gpu-a"]);
        let why = serve(&["--config", name, "--local-slots", "2"]).unwrap_err();
        assert!(why.contains("--local-slots describes one cluster") && why.contains("`slots`"), "{why}");
        std::fs::write(&file, format!("kube-namespace = \"train\"\n{tables}")).unwrap();
        let why = serve(&["--config", name]).unwrap_err();
        assert!(why.contains(name) && why.contains("--kube-namespace"), "{why}");
        std::fs::write(&file, "cluster = \"kubernetes\"\n").unwrap();
        assert_eq!(names(&serve(&["--config", name]).unwrap()), ["kubernetes"]);
        assert_eq!(names(&serve(&[]).unwrap()), ["local"]);
    }

    #[test]
    fn jobs_may_use_the_namespaces_that_are_named() {
        assert_eq!(serve(&[]).unwrap().kubernetes.namespaces, ["default"]);
        let config = serve(&["--kube-namespace", "train,eval", "--kube-allow-host-paths"]).unwrap();
        assert_eq!(config.kubernetes.namespaces, ["train", "eval"]);
        assert!(config.kubernetes.allow_host_paths);
        let why = serve(&["--agent-image", "a", "--agent-in-image", "/a"]).unwrap_err();
        assert!(why.contains("cannot be used with"), "{why}");
    }

    #[test]
    fn a_public_url_gives_origin_and_authority() {
        let url = public_url("https://Holdfast.Example.org:8443/").unwrap();
        assert_eq!(url.origin, "https://holdfast.example.org:8443");
        assert_eq!((url.authority.as_str(), url.secure), ("holdfast.example.org:8443", true));
    }
}
