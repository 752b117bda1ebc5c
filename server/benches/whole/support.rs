//! What the measurements share: a server within this process, and figures of many samples.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use axum::Router;
use engine::job::Site;
use server::{
    clock::{Clock, SystemClock},
    clusters::Cluster,
    driver::{Driver, DriverParts},
    logs::LogReader,
    service::Service,
    store::Store,
    tokens::Tokens,
    web::{self, WebParts, sessions::Access},
};
use tokio_util::sync::CancellationToken;

/// Whatever fails ends the run.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The secret of the installation that is measured.
const SECRET: [u8; 32] = [7; 32];

/// The tokens of its agents.
pub fn tokens() -> Tokens {
    Tokens::new(&SECRET)
}

/// The parts of a server that drives the jobs of a store.
pub struct Server {
    store: Store,
    clusters: BTreeMap<String, Arc<dyn Cluster>>,
    /// Acts on the jobs.
    pub driver: Driver,
    /// Ends everything.
    pub stop: CancellationToken,
}

impl Server {
    /// Drives the jobs of a store on a cluster, if one is given. Returns once it does.
    pub async fn start(store: Store, cluster: Option<Arc<dyn Cluster>>) -> Self {
        let clusters: BTreeMap<_, _> =
            cluster.into_iter().map(|cluster| (cluster.name().to_owned(), cluster)).collect();
        let stop = CancellationToken::new();
        let parts = DriverParts {
            store: store.clone(),
            clusters: clusters.clone(),
            clock: Arc::new(SystemClock),
            tokens: tokens(),
        };
        let driver = Driver::start(parts, stop.clone());
        driver.until_leading().await;
        Self { store, clusters, driver, stop }
    }

    /// Everything that it answers, as on loopback without accounts.
    ///
    /// # Errors
    /// The router cannot be made.
    pub fn router(&self, agents: Router, dir: &Path) -> Outcome<Router> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let access = Access::new(self.store.clone(), Arc::clone(&clock), true, false)?;
        let service = Arc::new(Service {
            store: self.store.clone(),
            driver: Arc::new(self.driver.clone()),
            clusters: self.clusters.clone(),
            clock,
            site: Site::default(),
            logs: LogReader::new(dir.to_owned()),
        });
        Ok(web::router(WebParts {
            service,
            access: Arc::new(access),
            metrics: None,
            agents,
            site: leptos::config::LeptosOptions::builder().output_name("holdfast").build(),
            loopback: true,
            public_url: None,
            metrics_open: false,
            server_id: "bench".into(),
            stop: self.stop.clone(),
        })?)
    }
}

/// Many measurements of one thing.
#[derive(Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Adds all of others.
    pub fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value that the share `quantile` of all samples does not exceed; not a number where there are none.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() as f64 * quantile).ceil() as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// What 19 of 20 do not exceed.
    pub fn p95(&self) -> f64 {
        self.quantile(0.95)
    }
}
