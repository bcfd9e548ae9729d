#include <ogive/testing/compare.hpp>
#include <ogive/testing/safetensors.hpp>

#include <cstdio>

int main() {
  ogive::testing::rng random(1);
  ogive::tensor<float, 2> x({2, 3});
  ogive::testing::fill_normal(random, x.all());
  ogive::testing::safetensors_writer writer;
  writer.add("x", x.all());
  writer.write("x.safetensors");
  const auto back = ogive::testing::safetensors("x.safetensors").get<float, 2>("x");
  std::remove("x.safetensors");
  return ogive::testing::compare(back.all(), x.all(), 0) ? 0 : 1;
}
