/** What is made of an opened thing, which is closed again where that fails. */
export async function closeOnFailure<Opened extends { close(): Promise<void> }, Made>(
  opened: Opened,
  make: (opened: Opened) => Made | Promise<Made>,
): Promise<Made> {
  try {
    return await make(opened)
  } catch (error) {
    await opened.close()
    throw error
  }
}
