// The C++ wrapper: averages a gradient with a schedule file, alone unless the environment says
// otherwise.
#include <bagua/bagua.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char **argv) {
  try {
    bagua::Context context;
    bagua::Memory memory = context.allocate(1000 * sizeof(float));
    for (int i = 0; i < 1000; ++i)
      memory.as<float>()[i] = static_cast<float>(context.rank());
    if (argc > 1) {
      bagua_bucket bucket = {};
      bucket.name = "bucket";
      bucket.length = 1000;
      bucket.gradient = memory.data();
      bagua::Binding binding = context.bind(bagua::Schedule::load(argv[1]), bucket);
      binding.start(BAGUA_GRADIENT, 0);
      binding.wait();
      float expected = static_cast<float>(context.world() - 1) / 2;
      if (memory.as<float>()[999] != expected)
        return 2;
    }
    std::printf("rank %d of %d\n", context.rank(), context.world());
    return 0;
  } catch (const bagua::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
