//! What `kubectl apply` refuses, and the sentence it says.

use agentsession_e2e::{Test, cluster::Said, run};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;

/// `kubectl` at once.
const ABREAST: usize = 4;

#[derive(Deserialize)]
struct Cases {
    base: Value,
    create: Vec<Create>,
    update: Vec<Update>,
}

#[derive(Deserialize)]
struct Create {
    case: String,
    change: Value,
    #[serde(default)]
    says: Vec<String>,
}

#[derive(Deserialize)]
struct Update {
    case: String,
    from: Value,
    to: Value,
    #[serde(default)]
    says: Vec<String>,
}

fn cases() -> Result<Cases> {
    Ok(serde_yaml::from_str(include_str!("../cases/validation.yaml"))?)
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(object) = target.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Writes out `{$repeat: [text, n]}` and `{$list: [item, n]}`.
fn expand(value: &Value) -> Value {
    let times = |list: &Value| usize::try_from(list[1].as_u64().unwrap_or_default()).unwrap_or_default();
    match value {
        Value::Object(object) if object.contains_key("$repeat") => {
            let list = &object["$repeat"];
            list[0].as_str().unwrap_or_default().repeat(times(list)).into()
        }
        Value::Object(object) if object.contains_key("$list") => {
            let list = &object["$list"];
            vec![expand(&list[0]); times(list)].into()
        }
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), expand(value))).collect(),
        Value::Array(list) => list.iter().map(expand).collect(),
        other => other.clone(),
    }
}

fn object(base: &Value, change: &Value, name: &str) -> Value {
    let mut object = base.clone();
    merge(&mut object, &expand(change));
    object["metadata"]["name"] = name.into();
    object
}

async fn apply(t: &Test, object: &Value, dry: bool) -> Result<Said> {
    let flags: &[&str] = if dry { &["--dry-run=server"] } else { &[] };
    let arguments = [&["-n", &t.namespace, "apply", "-f", "-"], flags].concat();
    // Server-side: an object of the largest prompts is too large for the annotation of a client-side apply.
    let arguments =
        [&arguments[..], if object.to_string().len() > 200_000 { &["--server-side"] } else { &[] }].concat();
    t.cluster.kubectl(&arguments, Some(&object.to_string())).await
}

fn check(case: &str, said: &Said, says: &[String]) -> Result<()> {
    ensure!(said.ok == says.is_empty(), "{case}: accepted is {}: {}", said.ok, said.err);
    for words in says {
        // kubectl escapes the quotes of what it quotes.
        ensure!(said.err.replace("\\\"", "\"").contains(words.as_str()), "{case}: {words:?} is not in: {}", said.err);
    }
    Ok(())
}

/// Collects what went wrong over all cases.
async fn all<T>(cases: Vec<T>, one: impl AsyncFn(usize, T) -> Result<()>) -> Result<()> {
    ensure!(cases.len() >= 20, "only {} cases", cases.len());
    let results: Vec<Result<()>> = stream::iter(cases.into_iter().enumerate())
        .map(|(at, case)| one(at, case))
        .buffer_unordered(ABREAST)
        .collect()
        .await;
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_object_is_refused_with_a_sentence() {
    run("validation", async |t| {
        let Cases { base, create, .. } = cases()?;
        all(create, async |at, case: Create| {
            let said = apply(t, &object(&base, &case.change, &format!("case-{at}")), true).await?;
            check(&case.case, &said, &case.says)
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_change_is_refused_with_a_sentence() {
    run("transitions", async |t| {
        let Cases { base, update, .. } = cases()?;
        all(update, async |at, case: Update| {
            let name = format!("case-{at}");
            let first = apply(t, &object(&base, &case.from, &name), false).await?;
            ensure!(first.ok, "{}: the first was refused: {}", case.case, first.err);
            let second = apply(t, &object(&base, &case.to, &name), false).await?;
            check(&case.case, &second, &case.says)
        })
        .await
        .context("kubectl apply over an object that is there")
    })
    .await;
}
