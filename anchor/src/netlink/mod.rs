//! The host's addresses, links and routes.
