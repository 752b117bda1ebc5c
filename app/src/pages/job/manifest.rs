//! The object that an attempt is on its cluster: to be read, and to be taken along.

use engine::job::ClusterKind;
use leptos::prelude::*;

use super::{
    attempt::AttemptHead,
    data::{self, JobResource, selected, use_query},
    spec::listing,
};
use crate::{
    components::{
        button::Look,
        class,
        failed::FailedPart,
        icon::{Icon, Mark},
        table::SectionHead,
    },
    console::ChainView,
    error::AppError,
    paths,
    server_fns::{jobs::get_task_manifest, new_job::NewJobStart},
};

/// What was read: the attempt that the address asks for, the object of that or of the newest; none where the cluster makes none.
type Read = Option<Result<(Option<String>, String), AppError>>;

/// Reads an attempt's object.
#[derive(Clone, Copy)]
pub struct Source {
    chain: Resource<Result<ChainView, AppError>>,
    read: Resource<Read>,
}

/// An attempt's object with the chain that it is of.
pub type Made = Option<Result<(ChainView, Option<String>, String), AppError>>;

impl Source {
    /// Waits for both.
    pub async fn made(self) -> Made {
        let read = self.read.await?;
        let chain = self.chain.await;
        Some(read.and_then(|(asked, text)| Ok((chain?, asked, text))))
    }
}

/// The object of the attempt that `?task=` asks for, else of the newest.
pub fn use_made(job: JobResource, start: Resource<Result<NewJobStart, AppError>>) -> Source {
    let (task, chain) = (use_query("task"), data::use_chain_once());
    let read = Resource::new_blocking(
        move || task.get(),
        move |asked| async move {
            let (name, site) = (job.await.ok()?.spec.cluster, start.await.ok()?.site);
            let cluster = site.clusters.iter().find(|cluster| cluster.name == name)?;
            if cluster.kind != ClusterKind::Kubernetes {
                return None;
            }
            Some(read(chain.await, asked).await)
        },
    );
    Source { chain, read }
}

async fn read(
    chain: Result<ChainView, AppError>,
    asked: Option<String>,
) -> Result<(Option<String>, String), AppError> {
    let task = selected(&chain?, asked.as_deref()).task;
    Ok((asked, get_task_manifest(task).await?))
}

/// The object of one attempt, with the way to the others.
#[component]
pub fn AttemptManifest(
    /// What was read.
    made: Made,
) -> impl IntoView {
    made.map(|made| {
        let body = match made {
            Ok((chain, asked, text)) => shown(chain, asked.as_deref(), text),
            Err(error) => view! { <FailedPart error /> }.into_any(),
        };
        view! {
            <section class="mt-8" aria-labelledby="manifest-h">
                <SectionHead id="manifest-h" title="Manifest">
                    <span class="text-ink-3">"what the cluster is asked for, without the tokens of the agents"</span>
                </SectionHead>
                {body}
            </section>
        }
    })
}

fn shown(chain: ChainView, asked: Option<&str>, text: String) -> AnyView {
    let selected = selected(&chain, asked);
    let (download, page) = (paths::task_manifest(&selected.task), paths::spec(&chain.job_id));
    view! {
        <div class="flex flex-wrap items-end gap-x-4 gap-y-2 mb-3">
            <div><AttemptHead chain selected page /></div>
            <span class=class::AT_END>
                <a href=download rel="external" download="" class=Look::Small.class()>
                    <Icon mark=Mark::Download />
                    "Download the manifest"
                </a>
            </span>
        </div>
        {listing("Manifest as YAML", text)}
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn html(made: Made) -> String {
        Owner::new().with(|| view! { <AttemptManifest made /> }.to_html())
    }

    #[test]
    fn each_attempts_object_is_shown_and_can_be_downloaded() {
        let made = |asked: Option<String>| Some(Ok((samples::chain(), asked, "note: \"<b>\"\n".to_owned())));
        let newest = html(made(None));
        assert!(newest.contains("Attempt 3 of 3") && newest.contains("&lt;b&gt;"), "{newest}");
        let second = html(made(Some(samples::task(2).to_string())));
        let file = format!("href=\"{}\"", paths::task_manifest(&samples::task(2)));
        assert!(second.contains(&file) && second.contains("Attempt 2 of 3"), "{second}");
    }

    #[test]
    fn a_local_job_has_none_and_a_failure_says_why() {
        assert!(!html(None).contains("Manifest"));
        let why = "Its manifest cannot be made: x.".to_owned();
        assert!(html(Some(Err(AppError::Conflict { why }))).contains("Its manifest cannot be made: x."));
    }
}
