//! What Kubernetes takes for a name, a key or a label.

/// What a DNS label is, as of a namespace.
pub(super) const DNS_LABEL_RULE: &str =
    "must be 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends, as Kubernetes names it";

/// A name of most objects (RFC 1123): DNS labels, with a dot between each.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let good = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(good)
}

/// The part of a label's key after its prefix, and a label's value that is not empty.
fn is_label_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends(text.chars().next())
        && ends(text.chars().last())
}

/// A label's value.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

/// A label's key, and a taint's: a name, with or without a domain before it.
pub(super) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// A resource that device plugins offer: always with a domain, never one of Kubernetes' own. The quota of a namespace
/// counts it as `requests.` and its name, which must be a name too.
pub(super) fn is_device_resource(text: &str) -> bool {
    text.split_once('/').is_some_and(|(prefix, _)| {
        !prefix.ends_with("kubernetes.io")
            && !text.starts_with("requests.")
            && is_label_key(&format!("requests.{text}"))
    })
}

/// A key of a Secret or ConfigMap, which becomes the name of a file.
pub(super) fn is_data_key(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text != "."
        && !text.starts_with("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_kubernetes_takes_them() {
        let long = "a".repeat(64);
        for (rule, good, bad) in [
            (
                is_dns_subdomain as fn(&str) -> bool,
                vec!["a", "data-1", "a.b.c", "0", long.as_str()],
                vec!["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a/b", "a b", "é"],
            ),
            (
                is_label_value,
                vec!["", "a", "A-b_c.d", "0"],
                vec!["-a", "a-", ".", "a b", "a/b", long.as_str()],
            ),
            (
                is_label_key,
                vec!["gpu", "nvidia.com/gpu.product", "kubernetes.io/arch", "A_b"],
                vec!["", "/a", "a/", "A.com/x", "a/b/c", "a=b", long.as_str()],
            ),
            (
                is_device_resource,
                vec!["nvidia.com/gpu", "amd.com/gpu", "example.com/A_1"],
                vec![
                    "gpu",
                    "cpu",
                    "memory",
                    "kubernetes.io/gpu",
                    "x.kubernetes.io/gpu",
                    "nvidia.com/",
                    "requests.a/b",
                ],
            ),
            (
                is_data_key,
                vec!["token", "A_b-c.d", ".dockerconfigjson"],
                vec!["", ".", "..", "..a", "a/b", "a b"],
            ),
        ] {
            good.iter().for_each(|text| assert!(rule(text), "{text}"));
            bad.iter().for_each(|text| assert!(!rule(text), "{text}"));
        }
        assert!(is_dns_subdomain(&"a".repeat(253)) && !is_dns_subdomain(&"a".repeat(254)));
    }
}
