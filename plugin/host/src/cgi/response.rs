//! A response by the rules of CGI: a status, headers, and a page.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::page::{self, STYLE};

/// How the web server was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other,
}

impl Method {
    /// The method with this name.
    pub fn from_name(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        }
    }
}

/// What the web server passes on.
#[derive(Debug)]
pub struct Response {
    status: &'static str,
    /// A header of this status alone.
    header: Option<&'static str>,
    html: String,
}

impl Response {
    /// A page.
    pub fn page(html: String) -> Response {
        Response {
            status: "200 OK",
            header: None,
            html,
        }
    }

    /// The one answer about what is not there and what the viewer may not know
    /// of. It repeats nothing of the request.
    pub fn not_found() -> Response {
        Response {
            status: "404 Not Found",
            header: None,
            html: page::message(
                "Nothing here",
                "There is no such repository or issue, or you may not see it.",
            ),
        }
    }

    /// The request would change something; nothing here does.
    pub fn not_allowed() -> Response {
        Response {
            status: "405 Method Not Allowed",
            header: Some("Allow: GET, HEAD"),
            html: page::message("Read only", "This page can only be looked at."),
        }
    }

    /// The claims can't be read now; why is in the logs.
    pub fn not_now() -> Response {
        Response {
            status: "503 Service Unavailable",
            header: Some("Retry-After: 10"),
            html: page::message(
                "Not now",
                "The claims can't be read at the moment. The server's log says why.",
            ),
        }
    }

    /// Writes it as the answer to a request of this `method`.
    ///
    /// # Errors
    /// The web server has gone.
    pub fn write(&self, method: Method, out: &mut impl Write) -> io::Result<()> {
        let mut headers = vec![
            format!("Status: {}", self.status),
            "Content-Type: text/html; charset=utf-8".to_owned(),
            format!("Content-Security-Policy: {}", policy()),
            "X-Content-Type-Options: nosniff".to_owned(),
            "Referrer-Policy: no-referrer".to_owned(),
            // Claims change at any time, and not everybody may see them.
            "Cache-Control: no-store".to_owned(),
        ];
        headers.extend(self.header.map(str::to_owned));
        write!(out, "{}\r\n\r\n", headers.join("\r\n"))?;
        if method != Method::Head {
            out.write_all(self.html.as_bytes())?;
        }
        out.flush()
    }
}

/// Lets a page have its own style and nothing else: no script, no image, no
/// frame around it, no form.
fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(response: &Response, method: Method) -> (Vec<String>, String) {
        let mut out = Vec::new();
        response.write(method, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (
            head.split("\r\n").map(str::to_owned).collect(),
            body.to_owned(),
        )
    }

    #[test]
    fn every_response_is_locked_down_and_never_kept() {
        for response in [
            Response::page("x".to_owned()),
            Response::not_found(),
            Response::not_allowed(),
            Response::not_now(),
        ] {
            let (head, body) = written(&response, Method::Get);
            assert!(head[0].starts_with("Status: "), "{head:?}");
            for header in [
                "Content-Type: text/html; charset=utf-8",
                "X-Content-Type-Options: nosniff",
                "Referrer-Policy: no-referrer",
                "Cache-Control: no-store",
            ] {
                assert!(head.iter().any(|line| line == header), "{header}");
            }
            assert_eq!(body, response.html);
            let (_, body) = written(&response, Method::Head);
            assert_eq!(body, "");
        }
    }

    #[test]
    fn the_policy_allows_the_style_that_pages_carry() {
        let (head, body) = written(&Response::not_found(), Method::Get);
        let (_, rest) = body.split_once("<style>").unwrap();
        let (style, _) = rest.split_once("</style>").unwrap();
        let hash = STANDARD.encode(Sha256::digest(style.as_bytes()));
        let policy = head
            .iter()
            .find(|line| line.starts_with("Content-Security-Policy: "))
            .unwrap();
        assert!(policy.contains("default-src 'none';"), "{policy}");
        assert!(policy.contains(&format!("style-src 'sha256-{hash}';")));
    }
}
