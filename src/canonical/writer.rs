//! The canonical text of a value.

use super::scan::plain_prefix;
use super::{Node, utf16_order};

/// The canonical text: RFC 8785 with exact decimals. Equal values have equal text, and other values other text.
///
/// Keys are sorted by UTF-16 code units. The node may have been built by hand, in any key order; of two equal keys
/// both are written.
pub fn write(node: &Node<'_>) -> String {
    let mut out = String::new();
    push(&mut out, node);
    out
}

fn push(out: &mut String, node: &Node<'_>) {
    match node {
        Node::Array(items) => push_all(out, "[]", items, push),
        Node::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| utf16_order(a, b));
            push_all(out, "{}", members, |out, (name, value)| {
                push_string(out, name);
                out.push(':');
                push(out, value);
            });
        }
        scalar => push_scalar(out, scalar),
    }
}

fn push_all<T>(out: &mut String, ends: &str, items: impl IntoIterator<Item = T>, each: impl Fn(&mut String, T)) {
    out.push_str(&ends[..1]);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        each(out, item);
    }
    out.push_str(&ends[1..]);
}

/// Writes anything but an array or object, which are written as if they were empty.
pub(super) fn push_scalar(out: &mut String, node: &Node<'_>) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(true) => out.push_str("true"),
        Node::Bool(false) => out.push_str("false"),
        Node::Number(number) => out.push_str(number.as_str()),
        Node::String(string) => push_string(out, string),
        Node::Array(_) => out.push_str("[]"),
        Node::Object(_) => out.push_str("{}"),
    }
}

/// Writes a string with the escapes of RFC 8785: the short ones, `\u00xx` in lower case for other control
/// characters, and nothing else.
pub(super) fn push_string(out: &mut String, string: &str) {
    out.push('"');
    let mut rest = string;
    loop {
        let plain = plain_prefix(rest.as_bytes());
        out.push_str(&rest[..plain]);
        let Some(byte) = rest.as_bytes().get(plain) else { break };
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0a => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            0x0d => out.push_str("\\r"),
            _ => out.push_str(&format!("\\u{byte:04x}")),
        }
        rest = &rest[plain + 1..];
    }
    out.push('"');
}
