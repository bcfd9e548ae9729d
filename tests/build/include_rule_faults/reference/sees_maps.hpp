#pragma once
#include <ogive/maps/exp.hpp>
