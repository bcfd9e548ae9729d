#pragma once
#include <ogive/ops/ssd.hpp>
