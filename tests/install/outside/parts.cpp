// The static libraries on their own.
#include <bagua/Schedule.h>
#include <bagua/kernels/Kernels.h>

#include <string>

int main() {
  bagua::kernels::Kernel kernel;
  std::string error;
  auto found = bagua::kernels::find("copy", bagua::kernels::DType::F32, {}, kernel, error);
  bool refused = !bagua::rt::Schedule::fromFile("/nonexistent.bsched").ok();
  return found == bagua::kernels::FindError::None && refused ? 0 : 1;
}
