#include <ogive/config.hpp>
