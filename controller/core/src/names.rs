//! Names that follow from a session: of its Pods, its claim and its labels.
//!
//! They are the same every time, so that an effect that is repeated meets the object that it made before.

use crds::names;
use transcript::{Attempt, SessionUid};

/// Longest name of a Pod that is also its host name, and longest value of a label.
const LABEL_CHARS: usize = 63;
/// Characters of the session's uid in the name of a Pod.
const UID_CHARS: usize = 8;

/// Name of the Pod of an attempt: `agentsession-<session name, cut>-<first 8 of uid>-<attempt>`, a DNS label.
#[must_use]
pub fn pod_name(session_name: &str, uid: &SessionUid, attempt: Attempt) -> String {
    let tail = format!("{}-{attempt}", uid_part(uid));
    // Two separators: one after the cut name, one inside the tail, which has its own already.
    let room = LABEL_CHARS.saturating_sub(names::POD_NAME_PREFIX.len() + tail.len() + 1);
    let stem: String = session_name.chars().map(label_char).take(room).collect();
    match stem.trim_matches('-') {
        "" => format!("{}{tail}", names::POD_NAME_PREFIX),
        stem => format!("{}{stem}-{tail}", names::POD_NAME_PREFIX),
    }
}

/// The attempt that the name of a Pod of this session says; `None` for any other name.
#[must_use]
pub fn attempt_of(pod_name: &str, uid: &SessionUid) -> Option<Attempt> {
    let (stem, attempt) = pod_name.strip_prefix(names::POD_NAME_PREFIX)?.rsplit_once('-')?;
    let uid = uid_part(uid);
    let ours = stem == uid || stem.strip_suffix(&uid).is_some_and(|rest| rest.ends_with('-'));
    if !ours || attempt.starts_with(['0', '+']) {
        return None;
    }
    attempt.parse().ok().map(Attempt)
}

/// Name of the session's workspace claim. It goes by uid alone: a later session of the same name must not find an earlier one's files.
#[must_use]
pub fn claim_name(uid: &SessionUid) -> String {
    format!("{}{uid}", names::POD_NAME_PREFIX)
}

/// A text as the value of a label: cut, and with what a label may not have replaced.
#[must_use]
pub fn label_value(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let value: String = text.chars().map(allowed).take(LABEL_CHARS).collect();
    value.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Names of sessions may have dots, host names may not.
fn label_char(c: char) -> char {
    if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }
}

fn uid_part(uid: &SessionUid) -> String {
    uid.as_str().chars().filter(char::is_ascii_alphanumeric).take(UID_CHARS).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uid() -> SessionUid {
        SessionUid::from("7f3c9a52-0d1e-4b6f-9c2a-1f2e3d4c5b6a")
    }

    #[test]
    fn a_pod_is_named_after_session_uid_and_attempt() {
        assert_eq!(pod_name("fix-login", &uid(), Attempt(3)), "agentsession-fix-login-7f3c9a52-3");
        assert_eq!(pod_name("fix.login", &uid(), Attempt(1)), "agentsession-fix-login-7f3c9a52-1");
        assert_eq!(
            pod_name(&"long-".repeat(20), &uid(), Attempt(12)),
            "agentsession-long-long-long-long-long-long-long-lon-7f3c9a52-12"
        );
    }

    #[test]
    fn a_name_of_another_session_says_no_attempt() {
        assert_eq!(attempt_of("agentsession-fix-login-7f3c9a52-3", &uid()), Some(Attempt(3)));
        for name in [
            "agentsession-fix-login-00000000-3",
            "agentsession-fix-login-7f3c9a52",
            "agentsession-fix-login-7f3c9a52-x",
            "agentsession-fix-login-7f3c9a52-03",
            "agentsession-fixlogin7f3c9a52-3",
            "other-7f3c9a52-3",
            "",
        ] {
            assert_eq!(attempt_of(name, &uid()), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_pod_name_is_a_dns_label_and_gives_its_attempt_back(name in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", attempt in 1_u32..) {
            let pod = pod_name(&name, &uid(), Attempt(attempt));
            prop_assert!(pod.len() <= 63, "{pod}");
            prop_assert!(pod.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{pod}");
            prop_assert!(!pod.ends_with('-') && !pod.contains("--7f3c9a52"), "{pod}");
            prop_assert_eq!(attempt_of(&pod, &uid()), Some(Attempt(attempt)));
        }

        #[test]
        fn every_label_value_is_one(text in "\\PC{0,100}") {
            let value = label_value(&text);
            prop_assert!(value.len() <= 63);
            prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
            prop_assert!(value.is_empty() || value.starts_with(|c: char| c.is_ascii_alphanumeric()));
            prop_assert!(value.is_empty() || value.ends_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }
}
