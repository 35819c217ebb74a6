// main() of tests whose binary executes itself as each rank.
#include "RankGroup.h"

#include <gmock/gmock.h>

int main(int argc, char **argv) {
  if (int code = bagua::test::runRankProgram(); code >= 0)
    return code;
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
