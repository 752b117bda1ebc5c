//! Plain form posts: what a page does without script. Each answers 303 to the page that shows its effect, or shows the page
//! it came from again with what is wrong.

mod nodes;

use app::{
    console::{Console, DiagnosisDraft},
    error::AppError,
    forms::{new_job, pasted, typed::Typed},
    paths,
    preferences::Preferences,
};
use axum::{
    Router,
    extract::{FromRequest, Request, State},
    middleware::from_fn,
    response::{AppendHeaders, IntoResponse, Redirect, Response},
    routing::post,
};
use engine::{
    ids::{IncidentId, JobId, NodeName, TaskId},
    job::FieldError,
};
use http::{HeaderMap, StatusCode, Uri, header, request::Parts};

use super::{
    WebState, extract,
    extract::ApiPath,
    problem::Problem,
    sessions::{self, Asks, SignInError},
    ssr,
};

/// Most fields of a form that are looked at.
const MAX_FIELDS: usize = 2000;

/// Plain form posts.
pub fn router() -> Router<WebState> {
    Router::new()
        .route(paths::NEW_JOB, post(create))
        .route("/jobs/{job_id}/stop", post(stop))
        .route("/jobs/{job_id}/delete", post(delete))
        .route("/jobs/{job_id}/resubmit", post(resubmit))
        .route("/jobs/{job_id}/acknowledge", post(acknowledge))
        .route("/jobs/{job_id}/test-exit", post(test_exit))
        .route("/jobs/{job_id}/diagnose", post(diagnose))
        .route("/diagnose/{run_id}/stop", post(stop_diagnosis))
        .route("/incidents/{id}/feedback", post(feedback))
        .merge(nodes::router())
        .route(paths::LOGIN, post(login))
        .route(paths::LOGOUT, post(logout))
        .route(paths::THEME, post(prefer))
        .route(paths::SETTINGS, post(prefer))
        .layer(from_fn(ssr::sign_in_first))
}

/// A posted form, in order, with the head of its request.
struct Form {
    fields: Vec<(String, String)>,
    parts: Parts,
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let is_form = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !is_form.is_none_or(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "no-form",
                "Not a form",
                "Forms are sent as application/x-www-form-urlencoded.",
            ));
        }
        let body = extract::body(Request::from_parts(parts.clone(), body)).await?;
        let fields: Vec<(String, String)> =
            form_urlencoded::parse(&body).into_owned().take(MAX_FIELDS + 1).collect();
        if fields.len() > MAX_FIELDS {
            return Err(Problem::malformed(format!("A form has at most {MAX_FIELDS} fields.")));
        }
        Ok(Self { fields, parts })
    }
}

impl Form {
    fn get(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field == name)
    }
}

/// Goes on to `path`, or shows the page at `back` again with the reason.
async fn answer(
    state: &WebState,
    form: Form,
    done: Result<(), AppError>,
    path: &str,
    back: &str,
) -> Response {
    match done {
        Ok(()) => Redirect::to(path).into_response(),
        Err(error) => {
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            ssr::refused(state, form.parts, back, ssr::posted(form.fields, &error), status).await
        }
    }
}

/// Creates the job, or shows the form again with what it holds, what is wrong and what the linked switches moved.
async fn create(State(state): State<WebState>, Asks(caller): Asks, form: Form) -> Response {
    let site = match state.service.site(&caller).await {
        Ok(site) => site,
        Err(error) => return Problem::from(error).into_response(),
    };
    let here = form.parts.uri.path_and_query().map_or(paths::NEW_JOB, |whole| whole.as_str()).to_owned();
    let form = Form { fields: with_manifest_read(&state, form.fields), ..form };
    let draft = match new_job::answer(form.fields.clone(), &site) {
        new_job::Answer::Create(draft) => draft,
        new_job::Answer::ShowAgain(mut posted) => {
            if let Some(draft) = new_job::asked_about(&posted, &site) {
                match state.service.check(&caller, &draft).await {
                    Ok(findings) => posted.findings = Some(findings),
                    Err(error) => return answer(&state, form, Err(error), paths::JOBS, &here).await,
                }
            }
            let status =
                StatusCode::from_u16(new_job::status(&posted)).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
            return ssr::refused(&state, form.parts, &here, posted, status).await;
        }
    };
    match state.service.create(&caller, &draft, copied_from(&form.parts.uri).as_ref()).await {
        Ok(id) => Redirect::to(&paths::job(&id)).into_response(),
        Err(AppError::Invalid { errors }) => {
            let posted = new_job::refused(form.fields, errors, &site);
            ssr::refused(&state, form.parts, &here, posted, StatusCode::UNPROCESSABLE_ENTITY).await
        }
        Err(error) => answer(&state, form, Err(error), paths::JOBS, &here).await,
    }
}

/// The fields with what a pasted manifest says, which is read here alone.
fn with_manifest_read(state: &WebState, fields: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut typed = Typed::new(fields);
    pasted::keep(&mut typed, |text| state.service.read_manifest(text));
    typed.into_fields()
}

async fn stop(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let done = state.service.stop(&caller, &id, form.has("force")).await;
    let page = paths::job(&id);
    answer(&state, form, done, &page, &page).await
}

async fn delete(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let done = state.service.delete(&caller, &id, form.has("force")).await;
    answer(&state, form, done, paths::JOBS, &paths::job(&id)).await
}

async fn resubmit(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let done = state.service.resubmit(&caller, &id).await;
    answer(&state, form, done, &paths::fault_tolerance(&id), &paths::job(&id)).await
}

async fn acknowledge(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let done = state.service.acknowledge(&caller, &id).await;
    let page = paths::job(&id);
    answer(&state, form, done, &page, &page).await
}

async fn test_exit(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let done = state.service.test_exit(&caller, &id).await;
    let page = paths::job(&id);
    answer(&state, form, done, &format!("{page}#xt-h"), &page).await
}

/// Begins a diagnosis of the chosen nodes, with the built-in test or a line for the shell.
async fn diagnose(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    form: Form,
) -> Response {
    let back = paths::new_diagnosis(&id);
    let done = match diagnosis_draft(&form) {
        Ok(draft) => state.service.diagnose(&caller, &id, &draft).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(run) => Redirect::to(&paths::diagnosis(&run)).into_response(),
        Err(error) => answer(&state, form, Err(error), &back, &back).await,
    }
}

/// What the form of a diagnosis asks for.
fn diagnosis_draft(form: &Form) -> Result<DiagnosisDraft, AppError> {
    let wrong =
        |field: &'static str, rule: &str| AppError::Invalid { errors: vec![FieldError::new(field, rule)] };
    let nodes = form.fields.iter().filter(|(name, _)| name == "node");
    let nodes: Result<Vec<_>, _> = nodes.map(|(_, value)| NodeName::new(value.clone())).collect();
    let nodes = nodes.map_err(|why| wrong("nodes", &why.to_string()))?;
    let line = form.get("command").trim();
    let command = (!line.is_empty()).then(|| vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()]);
    let limit_seconds = match form.get("limit_seconds").trim() {
        "" => None,
        text => Some(text.parse().map_err(|_| wrong("limit_seconds", "must be a whole number of seconds"))?),
    };
    Ok(DiagnosisDraft { nodes: Some(nodes), command, limit_seconds })
}

async fn stop_diagnosis(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(run_id): ApiPath<String>,
    form: Form,
) -> Response {
    let done = state.service.stop_diagnosis(&caller, &run_id).await;
    let page = paths::diagnosis(&paths::encode(&run_id));
    answer(&state, form, done, &page, &page).await
}

/// "Was this right?": `right` is `yes` or `no`; anything else takes the answer back.
async fn feedback(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<IncidentId>,
    form: Form,
) -> Response {
    let right = match form.get("right") {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    };
    let done = state.service.feedback(&caller, &id, right).await;
    let page = job_of(&id).map_or_else(|| paths::JOBS.to_owned(), |job| paths::incident(&job, &id));
    answer(&state, form, done, &page, &page).await
}

/// `<task id>-i<number>` names its attempt, which names its job.
fn job_of(incident: &IncidentId) -> Option<JobId> {
    let (task, _) = incident.as_str().rsplit_once("-i")?;
    TaskId::new(task).ok()?.job_id()
}

/// Signs in and goes where the person wanted to go; a wrong name and a wrong password look the same.
async fn login(State(state): State<WebState>, form: Form) -> Response {
    let next = own_path(form.get("next")).unwrap_or(paths::JOBS);
    let from = sessions::address(&form.parts);
    match state.access.sign_in(form.get("name"), form.get("password").to_owned(), from).await {
        Ok(cookie) => (AppendHeaders([(header::SET_COOKIE, cookie)]), Redirect::to(next)).into_response(),
        Err(SignInError::Wrong) => {
            Redirect::to(&format!("{}?failed&next={}", paths::LOGIN, paths::encode(next))).into_response()
        }
        Err(why @ SignInError::TooMany { .. }) => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-much", "Too many attempts", why.to_string())
                .into_response()
        }
        Err(SignInError::Database(error)) => Problem::from(error).into_response(),
        Err(error) => sessions::failed(&error).into_response(),
    }
}

async fn logout(State(state): State<WebState>, form: Form) -> Response {
    match state.access.sign_out(&form.parts.headers).await {
        Ok(cookie) => {
            (AppendHeaders([(header::SET_COOKIE, cookie)]), Redirect::to(paths::LOGIN)).into_response()
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Keeps what this browser prefers; needs no account, as it changes nothing on the server.
async fn prefer(form: Form) -> Response {
    let cookies =
        form.parts.headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fields = form.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let chosen = Preferences::of_cookies(cookies).of_form(fields);
    let back = own_path(form.get("next")).map(str::to_owned);
    let back = back.or_else(|| came_from(&form.parts.headers)).unwrap_or_else(|| paths::SETTINGS.to_owned());
    let cookies = chosen.set_cookies().map(|cookie| (header::SET_COOKIE, cookie));
    (AppendHeaders(cookies), Redirect::to(&back)).into_response()
}

/// A path of this server: `//host` and `/\\host` would leave it.
fn own_path(text: &str) -> Option<&str> {
    let inside = text.starts_with('/') && !text.starts_with("//") && !text.contains(['\\', '\r', '\n', '\t']);
    inside.then_some(text)
}

/// The job whose settings a form began with, as the form's address says.
fn copied_from(form: &Uri) -> Option<JobId> {
    let query = form.query().unwrap_or_default().as_bytes();
    let (_, from) = form_urlencoded::parse(query).find(|(name, _)| name == "from")?;
    app::pages::new_job::original(Some(from.into_owned()))
}

/// The page a post came from, if it is one of this server.
fn came_from(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let page: Uri = text(header::REFERER)?.parse().ok()?;
    let same = page.authority()?.as_str() == text(header::HOST)?;
    let path = page.path_and_query()?.as_str().to_owned();
    own_path(&path).filter(|_| same).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_knows_its_original_and_the_demo_has_none() {
        let original = |address: &str| copied_from(&address.parse().unwrap()).map(|id| id.to_string());
        assert_eq!(original("/jobs/new?from=jabcdefghij2"), Some("jabcdefghij2".to_owned()));
        for none in ["/jobs/new", "/jobs/new?from=", "/jobs/new?from=demo", "/jobs/new?from=%3Cb%3E"] {
            assert_eq!(original(none), None, "{none}");
        }
    }

    #[test]
    fn nobody_is_led_off_this_server() {
        for (text, want) in [
            ("/jobs?view=all", true),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https://evil.example", false),
            ("", false),
            ("/a\r\nSet-Cookie: x=1", false),
        ] {
            assert_eq!(own_path(text).is_some(), want, "{text:?}");
        }
    }

    #[test]
    fn an_incident_leads_to_its_job() {
        let incident = IncidentId::new("demo-jabcdefghij2-1-i3").unwrap();
        assert_eq!(job_of(&incident).map(String::from).as_deref(), Some("jabcdefghij2"));
    }
}
