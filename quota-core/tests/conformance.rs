//! Every store passes the conformance suite, through the same gate.

mod memory {
    quota_core::store_conformance!(quota_core::store::Memory);
}

mod yielding {
    quota_core::store_conformance!(quota_core::testkit::Yielding);
}

/// A failing store whose schedule is empty changes nothing.
mod unfailing {
    quota_core::store_conformance!(quota_core::testkit::Failing<quota_core::store::Memory>);
}
