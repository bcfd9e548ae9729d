#pragma once
#include <ogive/simd/batch.hpp>
