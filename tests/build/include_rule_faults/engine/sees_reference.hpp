#pragma once
#include <ogive/reference/ssd.hpp>
