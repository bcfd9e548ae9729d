#pragma once
using wide = xsimd::batch<float>;
