//! A real web server on a host: nginx, with its files below the host's own `/run`.

use std::fs;

use crate::host::{Host, Program};

/// Serves what is written to a host's `/run/site`; access is logged to `/run/access.log`.
///
/// # Panics
///
/// When nginx is not installed.
pub fn start_nginx(host: &Host, port: u16) -> Program {
    let settings = format!(
        "daemon off; pid /run/nginx.pid; error_log /run/nginx.log; user root;
        events {{}} http {{ access_log /run/access.log; client_body_temp_path /run/b;
        proxy_temp_path /run/p; fastcgi_temp_path /run/f; uwsgi_temp_path /run/u;
        scgi_temp_path /run/s; server {{ listen {port}; root /run/site; }} }}"
    );
    fs::create_dir_all(host.outside_path("/run/site")).expect("a host's /run is writable");
    fs::write(host.outside_path("/run/nginx.conf"), settings).expect("a host's /run is writable");
    let log = host.outside_path("/run/nginx.out");
    host.command("nginx")
        .args(["-c", "/run/nginx.conf"])
        .spawn(&log)
        .expect("nginx is installed")
}
