//! Reasons that cross the wire as a number each. One that only later releases know is kept as its
//! number, so that what an anchor passes on says what it was told.

/// Implements minicbor's `Encode` and `Decode` for an enum that has `Other(u32)` beside the
/// variants listed, each with its number on the wire.
macro_rules! numbered {
    ($name:ident { $($variant:ident = $number:literal,)+ }) => {
        impl $name {
            const fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Other(number) => number,
                }
            }

            const fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    _ => Self::Other(number),
                }
            }
        }

        impl<C> ::minicbor::Encode<C> for $name {
            fn encode<W: ::minicbor::encode::Write>(
                &self,
                e: &mut ::minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), ::minicbor::encode::Error<W::Error>> {
                e.u32(self.number())?.ok()
            }
        }

        impl<'b, C> ::minicbor::Decode<'b, C> for $name {
            fn decode(
                d: &mut ::minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, ::minicbor::decode::Error> {
                d.u32().map(Self::from_number)
            }
        }
    };
}

pub(super) use numbered;
