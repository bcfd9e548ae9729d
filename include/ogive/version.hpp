// The only place the version is written; CMake reads it from here.
#pragma once

#define OGIVE_VERSION_MAJOR 0
#define OGIVE_VERSION_MINOR 1
#define OGIVE_VERSION_PATCH 0
