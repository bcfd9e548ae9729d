#pragma once
#include "../config.hpp"
