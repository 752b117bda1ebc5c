//! `holdfast serve`: puts the parts together, serves, and takes them apart again.

mod clusters;

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, TryLockError},
    io::{Seek, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use engine::{
    job::{Site, SiteCluster},
    time::Time,
};
use futures::future::join_all;
use leptos::config::{Env, LeptosOptions};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use self::clusters::{Running, Shared};
use crate::{
    accountant::Accountant,
    agents,
    clock::{self, Clock, SystemClock},
    clusters::Cluster,
    config::{NO_CHECKS, Serve},
    diagnose::Diagnoses,
    driver::{Driver, DriverParts},
    keeper::Keeper,
    logs::{LogReader, sweep::Sweep},
    secrets,
    service::Service,
    store::{self, Store, idempotency, instance},
    tokens::Tokens,
    web::{self, WebParts, sessions::Access},
};

/// How long open requests may take once the server is told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How long work under way may take after that. A call to the local cluster is done within seconds; whatever is not is done again.
const TASKS_END: Duration = Duration::from_secs(20);

/// Serves until SIGTERM or SIGINT. Local replicas keep running; the next start finds them.
///
/// # Errors
/// Anything that keeps the server from starting, each in one line.
pub async fn run(settings: Serve, metrics: Option<PrometheusHandle>) -> anyhow::Result<()> {
    let data = data_dir(&settings.storage.data)?;
    let _lock = lock(&data)?;
    let storage = crate::config::Storage { data: data.clone(), ..settings.storage.clone() };
    let store = Store::open(&storage.database_url()).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}: choose another --listen", settings.listen))?;
    let address = listener.local_addr().context("the bound address is not known")?;
    let server_file = data.join("address");
    write_file(&server_file, &format!("http://{}", reachable(address)))?;

    let server_id = server_id(&data)?;
    forget_claims(&store, store.is_shared().then_some(&*server_id)).await?;

    let stop = CancellationToken::new();
    let tokens = Tokens::new(&secret(&store, clock.now()).await?);
    let running = Running::start_all(&Shared {
        settings: &settings,
        data: &data,
        server_file: &server_file,
        instance: tokens.instance(),
        stop: &stop,
    })
    .await?;
    let site = site(&settings, running.iter().map(Running::site));
    let clusters: BTreeMap<String, Arc<dyn Cluster>> = running.iter().map(Running::cluster).collect();
    let driver = Driver::start(
        DriverParts {
            store: store.clone(),
            clusters: clusters.clone(),
            clock: Arc::clone(&clock),
            tokens: tokens.clone(),
        },
        stop.clone(),
    );
    let keeper = Keeper {
        store: store.clone(),
        clusters: clusters.clone(),
        clock: Arc::clone(&clock),
        driver: Arc::new(driver.clone()),
        rules: site.nodes,
    };
    let keeping = tokio::spawn(keeper.keep_going(stop.clone()));
    let accountant =
        Accountant { store: store.clone(), driver: Arc::new(driver.clone()), clock: Arc::clone(&clock) };
    let accounting = tokio::spawn(accountant.keep_going(stop.clone()));
    let sweeping = tokio::spawn(Sweep::new(&data, store.clone()).keep_going(stop.clone()));
    let hub = agents::Hub::start(Arc::new(driver.clone()), tokens, Arc::clone(&clock), stop.clone());
    let public = settings.public_url.clone();
    let loopback = address.ip().is_loopback();
    let secure = public.as_ref().is_some_and(|url| url.secure);
    // Behind a proxy everybody seems to come from this machine.
    let single_user = loopback && settings.public_url.is_none();
    let access = Arc::new(Access::new(store.clone(), Arc::clone(&clock), single_user, secure)?);
    let service = Arc::new(Service {
        store: store.clone(),
        driver: Arc::new(driver.clone()),
        clusters,
        clock,
        site,
        logs: LogReader::new(data.clone()),
    });
    let diagnoses = Diagnoses {
        store: store.clone(),
        driver: driver.clone(),
        clock: Arc::clone(&service.clock),
        logs: Arc::new(LogReader::new(data.clone())),
        clusters: service.clusters.clone(),
        rules: service.site.nodes,
        test: settings.diagnosing.diagnose_command.clone().map(|command| command.0),
    };
    let diagnosing = tokio::spawn(diagnoses.keep_going(stop.clone()));
    let router = web::router(WebParts {
        service,
        access: Arc::clone(&access),
        metrics,
        agents: agents::router(Arc::clone(&hub)),
        site: site_files(&settings, address),
        loopback,
        public_url: public,
        metrics_open: settings.metrics_open,
        server_id,
        stop: stop.clone(),
    })?;

    let mut serving = tokio::spawn(
        axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future(),
    );
    if let Some(file) = &settings.addr_file {
        write_file(file, &address.to_string())?;
    }
    announce(&settings, address, &access).await?;
    until_told().await?;
    tracing::info!("stopping; jobs keep running");
    stop.cancel();
    if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
        tracing::warn!(seconds = DRAIN.as_secs(), "some requests did not end in time and were cut off");
        serving.abort();
    }
    let clusters_stopped = join_all(running.iter().map(Running::stopped));
    let ended = async {
        tokio::join!(
            driver.stopped(),
            hub.stopped(),
            clusters_stopped,
            sweeping,
            diagnosing,
            keeping,
            accounting
        )
    };
    if tokio::time::timeout(TASKS_END, ended).await.is_err() {
        tracing::warn!(
            seconds = TASKS_END.as_secs(),
            "some work did not end in time; the next start takes it up"
        );
    }
    store.close().await;
    Ok(())
}

/// Says where the console is and who may use it.
async fn announce(settings: &Serve, address: SocketAddr, access: &Access) -> anyhow::Result<()> {
    let url = match &settings.public_url {
        Some(public) => public.origin.clone(),
        None => format!("http://{}", reachable(address)),
    };
    let everywhere = if address.ip().is_unspecified() {
        format!(" and all addresses of this machine, port {}", address.port())
    } else {
        String::new()
    };
    tracing::info!("Holdfast {} serves {url}{everywhere}", env!("CARGO_PKG_VERSION"));
    let loopback = address.ip().is_loopback();
    if access.single_user().await? {
        tracing::info!(
            "single-user mode: no account exists, so whoever reaches {url} from this machine may do everything"
        );
    } else if !access.has_account().await? {
        tracing::warn!(
            "nobody can sign in yet: `holdfast user add NAME --data {}` makes the first account",
            settings.storage.data.display()
        );
    }
    if !loopback && !settings.public_url.as_ref().is_some_and(|public| public.secure) {
        tracing::warn!(
            "passwords travel unencrypted: put a proxy with TLS in front and set --public-url https://…"
        );
    }
    Ok(())
}

/// Directories of the data directory with the environments and the output of jobs, which are nobody else's on this machine.
const PRIVATE: [&str; 2] = ["jobs", "trash"];

/// The data directory, made where it is missing, as an absolute path: jobs start elsewhere. One that was there may let others in; what is
/// confidential in it is kept from them one by one.
pub(crate) fn data_dir(given: &Path) -> anyhow::Result<PathBuf> {
    let make = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir);
    make(given).with_context(|| format!("cannot make the data directory {}", given.display()))?;
    for dir in PRIVATE.map(|name| given.join(name)) {
        make(&dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        secrets::keep_from_others(&dir);
    }
    given.canonicalize().with_context(|| format!("cannot find the data directory {}", given.display()))
}

/// Holds the data directory for this process; the system lets go of it however the process ends.
fn lock(data: &Path) -> anyhow::Result<File> {
    let path = data.join("lock");
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot write in the data directory {}", data.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            bail!(
                "another server (process {}) uses the data directory {}: stop it or choose another --data",
                holder.trim(),
                data.display()
            );
        }
        Err(TryLockError::Error(why)) => {
            return Err(why).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file)
}

/// What this server is called in its database, made at the first start with this data directory.
fn server_id(data: &Path) -> anyhow::Result<Arc<str>> {
    let path = data.join("server-id");
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().into()),
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(why).with_context(|| format!("cannot read {}", path.display()))
        }
        _ => {
            let id = clock::new_id()?;
            write_file(&path, &id)?;
            Ok(id.into())
        }
    }
}

/// Requests that this server, or any where there is no other, was working on when it ended are given another chance.
async fn forget_claims(store: &Store, server: Option<&str>) -> anyhow::Result<()> {
    let mut tx = store.write().await?;
    idempotency::release_unanswered(&mut tx, server).await?;
    store::commit(tx).await?;
    Ok(())
}

/// Whole or not at all: agents and scripts read these files while they are written.
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, format!("{text}\n"))
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The address under which this machine reaches the server.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other.ip(),
    };
    SocketAddr::new(ip, address.port())
}

fn beside_us() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(program.parent().map(Path::to_owned).unwrap_or_default())
}

fn site(settings: &Serve, clusters: impl IntoIterator<Item = SiteCluster>) -> Site {
    let mut site = Site { clusters: clusters.into_iter().collect(), ..Site::default() };
    site.form_max_task_restarts = settings.form_max_task_restarts;
    site.defaults.hang_detection.start_after_seconds = settings.hang_start_after_seconds;
    site.defaults.hang_detection.diagnose = settings.diagnosing.diagnose_after_hang;
    let checks = &settings.health_checks;
    site.defaults.health_checks.enabled = !checks.iter().any(|name| name == NO_CHECKS);
    if site.defaults.health_checks.enabled {
        site.defaults.health_checks.checks.clone_from(checks);
    }
    site.nodes = settings.nodes.rules();
    site
}

/// The installation's secret, made at its first start.
async fn secret(store: &Store, now: Time) -> anyhow::Result<[u8; 32]> {
    let mut tx = store.write().await?;
    let found = instance::open(&mut tx, clock::new_secret()?, now).await?;
    store::commit(tx).await?;
    Ok(found.secret)
}

/// Where the pages' files are and how they are named.
fn site_files(settings: &Serve, address: SocketAddr) -> LeptosOptions {
    let beside = beside_us().unwrap_or_default();
    let places = [beside.join("site"), beside.join("../site"), PathBuf::from("target/site")];
    let found = settings.site.clone().or_else(|| places.into_iter().find(|place| place.is_dir()));
    if found.is_none() {
        tracing::warn!("the browser's files were not found, so pages have no style: name them with --site");
    }
    let root = found.unwrap_or_else(|| beside.join("site"));
    // As a whole path: leptos looks for a relative one beside the program. Only fails without a working directory.
    let names = std::path::absolute(root.join(web::NAMES)).unwrap_or_default();
    LeptosOptions::builder()
        .output_name("holdfast")
        .site_root(root.display().to_string())
        .site_pkg_dir("pkg")
        .env(Env::PROD)
        .site_addr(address)
        .hash_files(names.is_file())
        .hash_file(names.display().to_string().into())
        .build()
}

/// Waits for SIGTERM or SIGINT.
async fn until_told() -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_data_directory_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let error = lock(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn what_is_confidential_is_kept_from_others_in_a_data_directory_that_they_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open = || Permissions::from_mode(0o755);
        fs::create_dir(dir.path().join("jobs")).unwrap();
        for path in [dir.path(), &dir.path().join("jobs")] {
            fs::set_permissions(path, open()).unwrap();
        }
        let data = data_dir(dir.path()).unwrap();
        assert_eq!(mode(&data), 0o755, "it is not Holdfast's own");
        for name in PRIVATE {
            assert_eq!(mode(&data.join(name)), 0o700, "{name}");
        }
        assert_eq!(mode(&data_dir(&data.join("new")).unwrap()), 0o700);
    }

    #[test]
    fn a_server_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = server_id(dir.path()).unwrap();
        assert_eq!(server_id(dir.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(server_id(other.path()).unwrap(), name);
    }

    #[test]
    fn an_unspecified_address_is_reached_by_loopback() {
        for (bound, want) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), want);
        }
    }
}
