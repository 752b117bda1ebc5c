//! Kubernetes quantities as numbers: `500m`, `64Gi`, `4`.

/// The number of a quantity; none where it is not one.
pub(super) fn parse(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        // `1e3`, `1E-3`: whole as a decimal number.
        _ => return text.parse().ok().filter(|number: &f64| number.is_finite()),
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_the_api_server_writes_them() {
        for (text, want) in [
            ("4", Some(4.0)),
            ("500m", Some(0.5)),
            ("24581696Ki", Some(24_581_696.0 * 1024.0)),
            ("1.5Gi", Some(1.5 * 1_073_741_824.0)),
            ("2M", Some(2e6)),
            ("1e3", Some(1000.0)),
            ("", None),
            ("many", None),
            ("inf", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
