/* The C interface from C: alone in the world. */
#include <bagua/bagua.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  bagua_init_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.rank = 0;
  options.world = 1;
  options.local_rank = options.local_size = -1;
  bagua_context *context = NULL;
  if (bagua_init(&options, &context) != BAGUA_OK) {
    fprintf(stderr, "%s\n", bagua_last_error());
    return 1;
  }
  int value = 5;
  if (bagua_broadcast(context, &value, sizeof value, 0) != BAGUA_OK || value != 5)
    return 1;
  printf("bagua %s, rank %d of %d, %s\n", bagua_version(), bagua_rank(context), bagua_world(context),
         bagua_source(context));
  bagua_shutdown(context);
  return 0;
}
