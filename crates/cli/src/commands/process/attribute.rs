//! An attribute of a process as a JSON object.

use serde_json::{Value, json};

use crate::client::{Client, Failure};
use crate::commands::json::line;

/// An attribute: what `describe` and `get` answer.
pub(super) struct Attribute {
    path: String,
    description: String,
    value: String,
}

impl Attribute {
    pub(super) fn ask(client: &mut Client, path: &str) -> Result<Attribute, Failure> {
        Attribute::ask_all(client, &[path]).remove(0)
    }

    /// The same of several paths, whose requests are sent together. As many results as paths.
    pub(super) fn ask_all(client: &mut Client, paths: &[&str]) -> Vec<Result<Attribute, Failure>> {
        let mut ask = |verb| {
            let requests: Vec<_> = paths.iter().map(|path| format!("{verb} {path}")).collect();
            client.ask_all(&requests)
        };
        let answers = ask("describe").into_iter().zip(ask("get"));
        type Answer = Result<String, Failure>;
        let attribute = |(path, (description, value)): (&&str, (Answer, Answer))| {
            Ok(Attribute {
                path: path.trim_matches('/').to_owned(),
                description: description?,
                value: value?.trim_end().to_owned(),
            })
        };
        paths.iter().zip(answers).map(attribute).collect()
    }

    /// The object, on a line.
    pub(super) fn line(&self) -> String {
        line(&self.object())
    }

    fn object(&self) -> Value {
        let fact = |name: &str| {
            let mut lines = self.description.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.map(str::trim_start)
        };
        let allowed = fact("allowed").filter(|allowed| *allowed != "can only be read");
        let number = match fact("type") {
            Some("number") => self.value.parse::<i64>().ok().map(Value::from),
            Some("seconds") => self.value.parse::<f64>().ok().map(Value::from),
            _ => None,
        };
        json!({
            "path": self.path,
            "access": if allowed.is_some() { "rw" } else { "ro" },
            "type": fact("type"),
            "unit": fact("unit"),
            "value": number.unwrap_or_else(|| self.value.as_str().into()),
            "allowed": allowed,
            "about": self.description.lines().next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(description: &str, value: &str) -> Value {
        let (path, description) = ("devices/log/a".to_owned(), description.to_owned());
        Attribute { path, description, value: value.to_owned() }.object()
    }

    #[test]
    fn a_number_is_a_number_and_other_values_are_text() {
        let limit =
            object("The most items\ntype     number\nunit     items\nallowed  1 to 2048\n", "16");
        assert_eq!((&limit["value"], &limit["unit"]), (&16.into(), &"items".into()));
        assert_eq!((&limit["access"], &limit["allowed"]), (&"rw".into(), &"1 to 2048".into()));
        assert_eq!(limit["about"], "The most items");
        let mask = object("The CPUs\ntype     cpumask\nallowed  can only be read\n", "3");
        assert_eq!((&mask["value"], &mask["access"]), (&"3".into(), &"ro".into()));
        assert!(mask["unit"].is_null() && mask["allowed"].is_null());
        let seconds = object("Work\ntype     seconds\nunit     seconds\nallowed  0 to 9\n", "0.5");
        assert_eq!(seconds["value"], 0.5);
    }
}
