//! What pods ask for: those that are there and those that would be made, by the same rule. Pure.

use std::collections::{BTreeMap, BTreeSet};

use engine::job::quantity;
use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

/// Amounts by resource name.
pub(super) type Amounts = BTreeMap<String, f64>;

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub requests: Amounts,
    /// What it may use.
    pub limits: Amounts,
    /// Requests and limits that some container leaves to the namespace.
    pub unsaid: BTreeSet<&'static str>,
}

impl Asked {
    /// What runs before the program has its own time, so the larger counts; a sidecar among that runs on.
    pub(super) fn of(pod: &PodSpec) -> Self {
        let mut asked = Self::default();
        let inits = pod.init_containers.iter().flatten();
        let (sidecars, before): (Vec<_>, Vec<_>) =
            inits.partition(|one| one.restart_policy.as_deref() == Some("Always"));
        for container in pod.containers.iter().chain(sidecars) {
            asked.take(container, |sum, amount| sum + amount);
        }
        for container in before {
            asked.take(container, f64::max);
        }
        asked
    }

    fn take(&mut self, container: &Container, join: impl Fn(f64, f64) -> f64) {
        let resources = container.resources.as_ref();
        let limits = amounts(resources.and_then(|resources| resources.limits.as_ref()));
        // What is limited and not asked for is asked for as far as it is limited.
        let mut requests = limits.clone();
        requests.extend(amounts(resources.and_then(|resources| resources.requests.as_ref())));
        for (sum, amounts, names) in [
            (&mut self.requests, requests, ["requests.cpu", "requests.memory"]),
            (&mut self.limits, limits, ["limits.cpu", "limits.memory"]),
        ] {
            let names = ["cpu", "memory"].into_iter().zip(names);
            self.unsaid.extend(names.filter(|(name, _)| !amounts.contains_key(*name)).map(|(_, name)| name));
            for (name, amount) in amounts {
                let sum = sum.entry(name).or_default();
                *sum = join(*sum, amount);
            }
        }
    }
}

/// The amounts of an object; what is none is passed over.
pub(super) fn amounts(given: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let given = given.into_iter().flatten();
    given.filter_map(|(name, quantity)| Some((name.clone(), amount(quantity)?))).collect()
}

fn amount(quantity: &Quantity) -> Option<f64> {
    quantity::Quantity::read(&quantity.0).map(|quantity| quantity.thousandths as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_asks_for_all_that_runs_at_the_same_time() {
        let container = |cpu: &str| json!({ "name": cpu, "resources": { "requests": { "cpu": cpu } } });
        let mut sidecar = container("250m");
        sidecar["restartPolicy"] = json!("Always");
        for (case, first, want) in [("a short one before", "1", 3.25), ("a large one before", "9", 9.0)] {
            let pod = json!({
                "initContainers": [sidecar, container(first)],
                "containers": [container("2"), container("1e0")],
            });
            let asked = Asked::of(&serde_json::from_value(pod).unwrap());
            assert_eq!(asked.requests["cpu"], want, "{case}");
            assert!(asked.limits.is_empty(), "{case}");
            let unsaid: Vec<_> = asked.unsaid.iter().copied().collect();
            assert_eq!(unsaid, ["limits.cpu", "limits.memory", "requests.memory"], "{case}");
        }
    }

    #[test]
    fn amounts_are_read_as_the_api_server_writes_them() {
        let given = [("cpu", "500m"), ("memory", "24581696Ki"), ("pods", "110"), ("later", "many")];
        let given = given.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).into();
        let want = [("cpu", 0.5), ("memory", 24_581_696.0 * 1024.0), ("pods", 110.0)];
        assert_eq!(amounts(Some(&given)), want.map(|(name, amount)| (name.to_owned(), amount)).into());
    }
}
