// What two units of different vector width offer each other.
#pragma once

namespace two_isas {

using run = void (*)();

/// Ends in an ogive::shape_error.
void narrow_fails();
void wide_fails();

/// Whether this unit catches the ogive::shape_error that `other` throws.
bool narrow_catches(run other);
bool wide_catches(run other);

}  // namespace two_isas
