//! What others rely on: the description of the API and its fixed answers.

use crate::support::Server;

#[tokio::test]
async fn the_description_of_the_api_does_not_change_by_accident() {
    let server = Server::new().await;
    let answer = server.get("/api/v1/openapi.json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    insta::assert_snapshot!("openapi", answer.text);
}

#[tokio::test]
async fn prefilled_values_are_those_of_the_specification() {
    let server = Server::new().await;
    let settings = server.get("/api/v1/settings").await;
    insta::assert_json_snapshot!(settings.json());
}

#[tokio::test]
async fn the_built_in_policies_are_data() {
    let server = Server::new().await;
    let policies = server.get("/api/v1/policies").await.json();
    let names: Vec<_> = policies["items"].as_array().unwrap().iter().map(|policy| &policy["name"]).collect();
    assert_eq!(names, ["exit_code_and_message", "on_any_failure"]);
    assert!(policies["items"][0]["rules"].as_array().unwrap().iter().all(|rule| rule["id"].is_string()));
}
