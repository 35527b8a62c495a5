//! What a refusal to create a Pod means.

use crate::model::RefusalKind;

/// Reads an API server's answer to the creation of a Pod: HTTP status code, `reason` and `message` of its Status. `None`: not a refusal but a failure of
/// the moment, to be tried again (overload, conflict, a webhook or the server itself being away, a ServiceAccount that is not there *yet*).
#[must_use]
pub fn refusal(code: u16, reason: &str, message: &str) -> Option<RefusalKind> {
    match code {
        409 if reason == "AlreadyExists" => Some(RefusalKind::NameTaken),
        // The namespace itself is not found: it went between two looks.
        404 => Some(RefusalKind::NamespaceTerminating),
        403 => forbidden(message),
        401 | 408 | 409 | 429 => None,
        400..=499 => Some(RefusalKind::Fatal),
        _ => None,
    }
}

/// One code for many things; only the words tell them apart.
fn forbidden(message: &str) -> Option<RefusalKind> {
    let says = |words: &str| message.contains(words);
    if says("because it is being terminated") {
        Some(RefusalKind::NamespaceTerminating)
    } else if says("exceeded quota") || says("status unknown for quota") {
        Some(RefusalKind::Quota)
    } else if says("error looking up service account") || says("not yet ready to handle request") {
        // The first seconds of a namespace or of an API server.
        None
    } else {
        Some(RefusalKind::Fatal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_means_one_thing() {
        let quota =
            "pods \"p\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=2, limited: pods=2";
        let limits = "pods \"p\" is forbidden: failed quota: compute: must specify limits.cpu for: recorder";
        let range = "pods \"p\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
        let level =
            "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false";
        let going =
            "pods \"p\" is forbidden: unable to create new content in namespace team-a because it is being terminated";
        let early = "pods \"p\" is forbidden: error looking up service account team-a/default: serviceaccount \"default\" not found";
        let rights = "pods is forbidden: User \"u\" cannot create resource \"pods\" in API group \"\" in the namespace \"team-a\"";
        let webhook = "admission webhook \"policy.example.com\" denied the request: image is not signed";
        let moved = "Operation cannot be fulfilled on resourcequotas \"compute\": the object has been modified";
        for (code, reason, message, kind) in [
            (403, "Forbidden", quota, Some(RefusalKind::Quota)),
            (403, "Forbidden", "pods \"p\" is forbidden: status unknown for quota: compute", Some(RefusalKind::Quota)),
            (403, "Forbidden", limits, Some(RefusalKind::Fatal)),
            (403, "Forbidden", range, Some(RefusalKind::Fatal)),
            (403, "Forbidden", level, Some(RefusalKind::Fatal)),
            (403, "Forbidden", rights, Some(RefusalKind::Fatal)),
            (403, "Forbidden", going, Some(RefusalKind::NamespaceTerminating)),
            (403, "Forbidden", early, None),
            (404, "NotFound", "namespaces \"team-a\" not found", Some(RefusalKind::NamespaceTerminating)),
            (409, "AlreadyExists", "pods \"p\" already exists", Some(RefusalKind::NameTaken)),
            (409, "AlreadyExists", "object is being deleted: pods \"p\" already exists", Some(RefusalKind::NameTaken)),
            (409, "Conflict", moved, None),
            (400, "BadRequest", webhook, Some(RefusalKind::Fatal)),
            (403, "Forbidden", webhook, Some(RefusalKind::Fatal)),
            (422, "Invalid", "Pod \"p\" is invalid: spec.nodeSelector: Invalid value", Some(RefusalKind::Fatal)),
            (413, "RequestEntityTooLarge", "limit is 3145728", Some(RefusalKind::Fatal)),
            (401, "Unauthorized", "Unauthorized", None),
            (429, "TooManyRequests", "try again later", None),
            (500, "InternalError", "failed calling webhook \"policy.example.com\": connection refused", None),
            (503, "ServiceUnavailable", "apiserver is shutting down", None),
            (504, "Timeout", "request did not complete within 34s", None),
        ] {
            assert_eq!(refusal(code, reason, message), kind, "{code} {message}");
        }
    }
}
