//! What the gate is measured against.

mod governor;
mod limitador;

pub use self::governor::SixChecks;
pub use self::limitador::SixReservations;
